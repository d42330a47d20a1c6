//! The order in which a directory is read.
//!
//! The kernel reads a directory in pieces and names the place to go on from
//! by an offset. Opens carry no state, entries come and go meanwhile, and the
//! offset of an entry that stays must not move. So the order is that of a hash
//! of the names, and an entry's hash is its offset: any piece can be answered
//! from a fresh listing alone. The hash is keyed anew in each session, so
//! nobody can choose names that collide.
//!
//! This module also keeps listings whose reading has begun, only to save work: a large
//! directory is then not listed again for each piece. When an entry is removed, it is
//! struck out of a kept listing; any other change drops the listing.

use atomdir_disk::sync;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::filesystem::ListEntry;

/// Offsets 1 and 2 follow `.` and `..`.
pub const OFFSET_AFTER_DOT: u64 = 1;
pub const OFFSET_AFTER_DOTS: u64 = 2;

/// The oldest kept listings are dropped when there are more than this, or when all
/// together have more entries than the next limit.
const LISTINGS_KEPT_MAX: usize = 64;
const ENTRIES_KEPT_MAX: usize = 1 << 20;

const VERSION_SLOTS: usize = 64;

pub struct Listing {
    /// Sorted by offset. Each offset occurs once and is above [`OFFSET_AFTER_DOTS`].
    items: Vec<Item>,
}

struct Item {
    offset: u64,
    entry: ListEntry,
    removed: AtomicBool,
}

impl Listing {
    /// The entries that follow `offset`, each with its own offset.
    pub fn after(&self, offset: u64) -> impl Iterator<Item = (u64, &ListEntry)> {
        let start = self.items.partition_point(|item| item.offset <= offset);
        self.items[start..]
            .iter()
            .filter(|item| !item.removed.load(Ordering::Relaxed))
            .map(|item| (item.offset, &item.entry))
    }
}

#[derive(Default)]
pub struct Listings {
    hash: RandomState,
    kept: Mutex<Kept>,
}

/// Stands for the moment before a directory was listed.
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

struct Kept {
    by_node: HashMap<u64, Arc<Listing>>,
    /// The same nodes, oldest first.
    order: VecDeque<u64>,
    entries: usize,
    /// Counts the changes of the nodes that share a slot.
    versions: [u64; VERSION_SLOTS],
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            by_node: HashMap::new(),
            order: VecDeque::new(),
            entries: 0,
            versions: [0; VERSION_SLOTS],
        }
    }
}

impl Listings {
    pub fn kept(&self, node: u64) -> Option<Arc<Listing>> {
        sync::lock(&self.kept).by_node.get(&node).cloned()
    }

    /// Call before listing the directory.
    pub fn moment(&self, node: u64) -> Moment {
        Moment(*sync::lock(&self.kept).version(node))
    }

    pub fn sort(&self, entries: Vec<ListEntry>) -> Arc<Listing> {
        let mut items: Vec<Item> = entries
            .into_iter()
            .map(|entry| Item {
                // Two bits are left free: an offset must be a positive
                // 64-bit number, and of equal hashes all but one move up.
                offset: (self.hash.hash_one(entry.name.as_bytes()) >> 2) + OFFSET_AFTER_DOTS + 1,
                entry,
                removed: AtomicBool::new(false),
            })
            .collect();
        items.sort_unstable_by(|a, b| {
            (a.offset, a.entry.name.as_bytes()).cmp(&(b.offset, b.entry.name.as_bytes()))
        });
        let mut last = OFFSET_AFTER_DOTS;
        for item in &mut items {
            item.offset = item.offset.max(last + 1);
            last = item.offset;
        }
        Arc::new(Listing { items })
    }

    /// Keeps a listing unless the directory changed since `moment`.
    pub fn keep(&self, node: u64, listing: &Arc<Listing>, moment: Moment) {
        let mut kept = sync::lock(&self.kept);
        if *kept.version(node) != moment.0 {
            return;
        }
        kept.drop_listing(node);
        kept.entries += listing.items.len();
        kept.by_node.insert(node, Arc::clone(listing));
        kept.order.push_back(node);
        while kept.is_full() {
            let Some(oldest) = kept.order.front().copied() else {
                break;
            };
            kept.drop_listing(oldest);
        }
    }

    /// Drops the listing: the directory was read to its end, or its node is gone.
    pub fn finished(&self, node: u64) {
        sync::lock(&self.kept).drop_listing(node);
    }

    /// Some entry was added or changed.
    pub fn changed(&self, node: u64) {
        let mut kept = sync::lock(&self.kept);
        *kept.version(node) += 1;
        kept.drop_listing(node);
    }

    pub fn removed(&self, node: u64, name: &[u8]) {
        let mut kept = sync::lock(&self.kept);
        *kept.version(node) += 1;
        let Some(listing) = kept.by_node.get(&node) else {
            return;
        };
        let offset = (self.hash.hash_one(name) >> 2) + OFFSET_AFTER_DOTS + 1;
        let start = listing.items.partition_point(|item| item.offset < offset);
        let found = listing.items[start..]
            .iter()
            .find(|item| item.entry.name.as_bytes() == name);
        if let Some(item) = found {
            item.removed.store(true, Ordering::Relaxed);
        }
    }
}

impl Kept {
    fn version(&mut self, node: u64) -> &mut u64 {
        let mixed = node ^ node >> 40;
        &mut self.versions[mixed as usize % VERSION_SLOTS]
    }

    fn is_full(&self) -> bool {
        let kept = self.by_node.len();
        kept > LISTINGS_KEPT_MAX || (kept > 1 && self.entries > ENTRIES_KEPT_MAX)
    }

    fn drop_listing(&mut self, node: u64) {
        if let Some(listing) = self.by_node.remove(&node) {
            self.entries -= listing.items.len();
            self.order.retain(|other| *other != node);
        }
    }
}

#[cfg(test)]
mod tests {
    use atomdir_disk::{Kind, Name};

    use super::*;

    fn entries(names: impl Iterator<Item = u32>) -> Vec<ListEntry> {
        names
            .map(|number| ListEntry {
                name: Name::new(number.to_string().as_bytes()).unwrap(),
                inode: u64::from(number),
                kind: Kind::File,
            })
            .collect()
    }

    #[test]
    fn offsets_stay_while_entries_come_and_go() {
        let listings = Listings::default();
        let all = listings.sort(entries(0..2000));
        let odd = listings.sort(entries((0..3000).filter(|number| number % 2 == 1)));
        let of_odd: HashMap<&Name, u64> = odd
            .after(0)
            .map(|(offset, entry)| (&entry.name, offset))
            .collect();
        for (offset, entry) in all.after(0).filter(|(_, entry)| entry.inode % 2 == 1) {
            assert_eq!(of_odd[&entry.name], offset);
        }
        let half = all.after(0).nth(999).unwrap().0;
        assert_eq!(all.after(half).count(), 1000);
    }

    #[test]
    fn kept_listings_follow_changes() {
        let listings = Listings::default();
        let moment = listings.moment(7);
        let listing = listings.sort(entries(0..10));
        listings.keep(7, &listing, moment);
        listings.removed(7, b"3");
        assert_eq!(listings.kept(7).unwrap().after(0).count(), 9);
        listings.keep(7, &listing, moment);
        assert!(listings.kept(7).is_some());
        listings.changed(7);
        assert!(listings.kept(7).is_none());
        listings.keep(7, &listing, moment);
        assert!(listings.kept(7).is_none(), "listed before the change");
    }
}
