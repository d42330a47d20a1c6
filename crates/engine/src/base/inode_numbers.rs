//! The inode numbers that views show.
//!
//! Invariants
//! 1. Each is below 2^53. Some languages have no integers but doubles, which hold larger numbers
//!    only roughly: different files would then have equal numbers.
//! 2. As long as a store is open, all its views give one number to one object only, whether the
//!    object is in the base or new in a transaction.
//! 3. An object of the base whose own number is below 2^51 has that number in all views.
//!
//! | from | to | numbers of |
//! | --- | --- | --- |
//! | 0 | 2^51 | objects of the base: their own |
//! | 2^51 | 2^52 | objects of the base whose own numbers are larger, given out in the order in which views see the objects |
//! | 2^52 | 2^52 + 2^51 | new objects, until they are committed |
//! | 2^52 + 2^51 | 2^53 | directories above the views (`atomdir-views`) |
//!
//! Only the numbers of views are meant here. What the engine stores and compares is the
//! file system's own number. The new files of a native view have that number, too.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{NodeAttributes, Stat};

use crate::lock;

const LARGE_FIRST: u64 = 1 << 51;
const NEW_FIRST: u64 = 1 << 52;
/// Views give no number from here on.
pub const INODES_END: u64 = (1 << 52) + (1 << 51);

pub(crate) struct InodeNumbers {
    /// What stands for the base's larger numbers. Few file systems have any. Entries stay, since a
    /// program may remember a number for as long as its view is open.
    large: Mutex<HashMap<u64, u64>>,
    new_next: AtomicU64,
}

impl InodeNumbers {
    pub fn new() -> InodeNumbers {
        InodeNumbers {
            large: Mutex::default(),
            new_next: AtomicU64::new(NEW_FIRST),
        }
    }

    /// The number that views show for one of the file system's own.
    pub fn shown(&self, own: u64) -> u64 {
        if own < LARGE_FIRST {
            return own;
        }
        let mut large = lock(&self.large);
        let next = LARGE_FIRST + large.len() as u64;
        assert!(next < NEW_FIRST, "no memory holds so many inode numbers");
        *large.entry(own).or_insert(next)
    }

    /// A number for a new object.
    pub fn new_object(&self) -> u64 {
        let number = self.new_next.fetch_add(1, Ordering::Relaxed);
        assert!(
            number < INODES_END,
            "no store lives for so many new objects"
        );
        number
    }

    /// The number that an object had in a view before a restart, or another one if that may be
    /// another object's by now. `own`: the file system's number of an object of the base.
    pub fn revived(&self, shown: u64, own: Option<u64>) -> u64 {
        match own {
            Some(own) if shown >= LARGE_FIRST => self.shown(own),
            Some(_) => shown,
            None => {
                self.new_next.fetch_max(shown + 1, Ordering::Relaxed);
                shown
            }
        }
    }

    /// The attributes that views show.
    pub fn attributes_of(&self, stat: &Stat) -> NodeAttributes {
        let attributes = stat.attributes;
        NodeAttributes {
            inode: self.shown(stat.identity.inode),
            kind: stat.kind,
            mode: attributes.mode,
            links: stat.links,
            owner: attributes.owner,
            device_number: stat.device_number,
            length: stat.length,
            blocks: stat.blocks,
            accessed: attributes.times.accessed,
            modified: attributes.times.modified,
            changed: stat.changed,
        }
    }
}
