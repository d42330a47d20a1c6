//! What files held before a transaction changed them. No snapshot keeps what an outside writer
//! overwrites or removes, so a view remembers the contents of small old files: when it first
//! changes one, and when programs read one, for in a native view the kernel copies a file by reading
//! it. With them, a conflict can show what each side has changed, texts can be merged, and a file
//! whose times alone have changed is seen to be the same.
//!
//! Invariants
//! 1. Contents are remembered only as they were when the transaction began. So the file was not
//!    changed since by an outside writer: its change time is before the begin, or the store's own
//!    last commit has left it as it is. All parts of it were read while it looked the same.
//! 2. Nothing depends on them: they are dropped if there is no room, and with the transaction or the
//!    service. What is then not known stays a conflict.
//! 3. All transactions together hold no more than [`ALL_MAX`] bytes, and one no more than
//!    [`BYTES_MAX`]. What was read goes before what was changed.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atomdir_disk::{Disk, Errno, Kind, Result, Stat, Timestamp};

use super::View;
use crate::base::snapshot::PAGE;
use crate::base::{Base, OwnStamp, Stamp, Xattrs};
use crate::ids::NodeId;
use crate::lock;
use crate::ranges::RangeSet;

/// Longer files are not remembered.
const LENGTH_MAX: u64 = 1 << 20;
/// Shorter files count as if they had so many bytes. So a transaction that changes a great many small
/// ones reads only the first thousand for this.
const LENGTH_COUNTED_MIN: u64 = 16 << 10;
const BYTES_MAX: u64 = 16 << 20;
const ALL_MAX: u64 = 64 << 20;

/// Shared by the views of one transaction and those nested in it. Nothing is locked under it.
#[derive(Clone, Default)]
pub(crate) struct OldTexts(Arc<Mutex<Texts>>);

#[derive(Default)]
struct Texts {
    /// When the transaction began. At first too early for anything to be remembered.
    began: Timestamp,
    /// By the serials of the files.
    all: HashMap<u64, Text>,
    /// Those that were only read, oldest first.
    read: VecDeque<u64>,
    bytes: u64,
    /// Of these, those of files that were only read.
    read_bytes: u64,
    /// How much all transactions have.
    total: Option<Arc<AtomicU64>>,
}

#[derive(Clone)]
struct Text {
    /// Keeps its serial valid.
    _base: Arc<Base>,
    stat: Stat,
    xattrs: Option<Xattrs>,
    contents: Arc<Vec<u8>>,
    /// The pages that were read.
    filled: RangeSet,
    is_changed: bool,
}

/// A file as the transaction found it.
#[derive(Clone)]
pub(crate) struct OldFile {
    pub stat: Stat,
    /// `None`: not known.
    pub xattrs: Option<Xattrs>,
    pub contents: Arc<Vec<u8>>,
}

impl Text {
    fn is_whole(&self) -> bool {
        self.filled.total() == self.stat.length.div_ceil(PAGE)
    }
}

impl Texts {
    fn remove(&mut self, serial: u64) {
        if let Some(text) = self.all.remove(&serial) {
            self.release(cost(&text.stat));
            if !text.is_changed {
                self.read_bytes -= cost(&text.stat);
                self.read.retain(|read| *read != serial);
            }
        }
    }

    fn release(&mut self, bytes: u64) {
        self.bytes -= bytes;
        if let Some(total) = &self.total {
            total.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether there is room for so many bytes if what was only read goes.
    fn can_have(&self, bytes: u64) -> bool {
        self.bytes - self.read_bytes + bytes <= BYTES_MAX
    }

    /// Returns false if there is no room.
    fn make_room(&mut self, bytes: u64, total: &Arc<AtomicU64>) -> bool {
        let total = self.total.get_or_insert_with(|| total.clone()).clone();
        let is_full = |texts: &Texts| {
            texts.bytes + bytes > BYTES_MAX || total.load(Ordering::Relaxed) + bytes > ALL_MAX
        };
        while is_full(self) {
            let Some(oldest) = self.read.pop_front() else {
                return false;
            };
            if let Some(text) = self.all.remove(&oldest) {
                self.release(cost(&text.stat));
                self.read_bytes -= cost(&text.stat);
            }
        }
        self.bytes += bytes;
        total.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Whether the file is as it was when the transaction began.
    fn is_settled(&self, base: &Base, stat: &Stat) -> bool {
        let state = base.state();
        let Some(changed) = state.changed() else {
            return stat.changed < self.began;
        };
        let doubt = changed.doubt.map(|(until, _)| until);
        let is_late = |at: Option<Timestamp>| at.is_some_and(|at| at >= self.began);
        let is_ours = |own: OwnStamp| own.stamp == Stamp::of(stat);
        !is_late(changed.outside.max(doubt))
            && (stat.changed < self.began || changed.own_stamp.is_some_and(is_ours))
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

impl OldTexts {
    /// Forgets everything: the transaction has this begin from now on.
    pub fn begin(&self, began: Timestamp) {
        let mut texts = lock(&self.0);
        // This drops the former ones, which releases their bytes.
        *texts = Texts::default();
        texts.began = began;
    }

    /// For a transaction with the same begin, which may lose it before this one does. What there is no
    /// room for is left out.
    pub fn copy(&self) -> OldTexts {
        let texts = lock(&self.0);
        let mut copy = Texts::default();
        copy.began = texts.began;
        let Some(total) = &texts.total else {
            return OldTexts(Arc::new(Mutex::new(copy)));
        };
        let read = texts
            .read
            .iter()
            .filter_map(|serial| texts.all.get_key_value(serial));
        let changed = texts.all.iter().filter(|(_, text)| text.is_changed);
        // What was changed comes last: if there is no room, it takes that of what was read.
        for (serial, text) in read.chain(changed) {
            let bytes = cost(&text.stat);
            if !copy.make_room(bytes, total) {
                continue;
            }
            if !text.is_changed {
                copy.read.push_back(*serial);
                copy.read_bytes += bytes;
            }
            copy.all.insert(*serial, text.clone());
        }
        OldTexts(Arc::new(Mutex::new(copy)))
    }

    /// The file, if all of it is known.
    pub fn get(&self, base: &Base) -> Option<OldFile> {
        let texts = lock(&self.0);
        let text = texts.all.get(&base.serial).filter(|text| text.is_whole())?;
        Some(OldFile {
            stat: text.stat,
            xattrs: text.xattrs.clone(),
            contents: text.contents.clone(),
        })
    }

    /// The transaction has landed its changes of the file, so its snapshot has these now.
    pub fn forget(&self, base: &Base) {
        lock(&self.0).remove(base.serial);
    }

    /// Takes a part of a file that was read for a program. `stat` is from before.
    pub fn note_read(
        &self,
        (base, stat): (&Arc<Base>, &Stat),
        (offset, data): (u64, &[u8]),
        total: &Arc<AtomicU64>,
    ) {
        let mut texts = lock(&self.0);
        let known = texts.all.get(&base.serial);
        if let Some(known) = known {
            let is_same = Stamp::of(&known.stat) == Stamp::of(stat);
            if known.is_changed || is_same && known.is_whole() {
                return;
            }
            if !is_same {
                texts.remove(base.serial);
                return;
            }
        } else {
            if !texts.is_settled(base, stat) || !texts.make_room(cost(stat), total) {
                return;
            }
            texts.read.push_back(base.serial);
            texts.read_bytes += cost(stat);
            let contents = vec![0; stat.length as usize];
            texts.all.insert(base.serial, text(base, stat, contents));
        }
        let Some(text) = texts.all.get_mut(&base.serial) else {
            return;
        };
        let end = offset + data.len() as u64;
        if !offset.is_multiple_of(PAGE) || end > stat.length {
            return;
        }
        Arc::make_mut(&mut text.contents)[offset as usize..end as usize].copy_from_slice(data);
        let until = match end == stat.length {
            true => end.div_ceil(PAGE),
            false => end / PAGE,
        };
        text.filled.insert(offset / PAGE, until.max(offset / PAGE));
    }

    /// Whether more of the file is wanted.
    fn wants(&self, base: &Base, stat: &Stat) -> bool {
        let texts = lock(&self.0);
        texts.can_have(cost(stat)) && texts.is_settled(base, stat)
    }

    fn is_full(&self) -> bool {
        !lock(&self.0).can_have(LENGTH_COUNTED_MIN)
    }

    /// Whether the file is remembered as one that is changed.
    fn has_changed(&self, base: &Base) -> bool {
        let texts = lock(&self.0);
        let known = texts.all.get(&base.serial);
        known.is_some_and(|text| text.is_changed)
    }

    fn keep(&self, mut text: Text, serial: u64, total: &Arc<AtomicU64>) {
        let mut texts = lock(&self.0);
        texts.remove(serial);
        if texts.make_room(cost(&text.stat), total) {
            text.is_changed = true;
            text.filled.insert(0, text.stat.length.div_ceil(PAGE));
            texts.all.insert(serial, text);
        }
    }
}

fn cost(stat: &Stat) -> u64 {
    stat.length.max(LENGTH_COUNTED_MIN)
}

fn text(base: &Arc<Base>, stat: &Stat, contents: Vec<u8>) -> Text {
    Text {
        _base: base.clone(),
        stat: *stat,
        xattrs: None,
        contents: Arc::new(contents),
        filled: RangeSet::default(),
        is_changed: false,
    }
}

pub(super) fn is_short(stat: &Stat) -> bool {
    stat.kind == Kind::File && stat.length <= LENGTH_MAX
}

impl<D: Disk> View<D> {
    /// Remembers an old file that is about to be changed. Nothing fails if that cannot be.
    pub(super) fn remember_old(&self, id: NodeId) {
        let base = self.node(id).ok().and_then(|node| node.base.as_ref());
        if let Some(base) = base
            && base.kind == Kind::File
            && !self.old_texts.is_full()
            && !self.old_texts.has_changed(base)
        {
            let _ = self.read_old(base);
        }
    }

    fn read_old(&self, base: &Arc<Base>) -> Result<()> {
        let stat = self.core.stat_now(base)?;
        if !is_short(&stat) || !self.old_texts.wants(base, &stat) {
            return Ok(());
        }
        let length = self.snapshot().stat_of_present(base, &stat).length;
        if length > LENGTH_MAX {
            return Ok(());
        }
        let mut contents = vec![0; length as usize];
        let snapshot = self.snapshot();
        snapshot.read(base, 0, &mut contents)?;
        let mut found = text(base, &stat, contents);
        let shown = self.shown.as_ref();
        let xattrs = shown.and_then(|shown| shown.xattrs_beside(base, &stat));
        found.xattrs = Some(xattrs.map_or_else(|| snapshot.xattrs(base), Ok)?);
        if Stamp::of(&self.core.stat_now(base)?) != Stamp::of(&stat) {
            return Err(Errno::STALE);
        }
        // Commits of others may have changed it since the begin.
        found.stat = self.snapshot().stat_of_present(base, &stat);
        self.old_texts
            .keep(found, base.serial, &self.core.old_text_bytes);
        Ok(())
    }
}
