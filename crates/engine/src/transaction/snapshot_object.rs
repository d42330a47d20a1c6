//! Looks up the object at a path in a transaction's snapshot or in the newest state, to compare it
//! with the transaction's view.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result, Timestamp};
use atomdir_types::Side;

use crate::base::acl;
use crate::base::landed::Landed;
use crate::base::snapshot::Snapshot;
use crate::base::{Base, Stamp};
use crate::ids::Sequence;
use crate::transaction::Transaction;
use crate::view::NodeAttributes;
use crate::view::old_texts::OldFile;

/// An object in the snapshot or in the newest state.
#[derive(Debug, Clone)]
pub struct SnapshotObject {
    /// The same on both sides, also if a commit has given the file another inode.
    pub object: u64,
    pub kind: Kind,
    pub attributes: NodeAttributes,
    /// Sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The target of a symbolic link; empty for other kinds.
    pub target: Vec<u8>,
    /// An outside writer may have changed it since the transaction began. No snapshot keeps the
    /// data that they overwrite, so the object's state at the begin is then unknown.
    pub changed_outside: bool,
}

impl SnapshotObject {
    /// Whether there is an access list. If so, the mode alone does not say who may
    /// read it.
    pub fn has_access_list(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| name == acl::ACCESS)
    }

    /// For a client that takes contents of at most this length.
    pub fn for_client(self, contents_length_max: u64) -> atomdir_types::SnapshotObject {
        let attributes = self.attributes;
        let is_file = self.kind == Kind::File;
        atomdir_types::SnapshotObject {
            object: self.object,
            kind: self.kind,
            inode: attributes.inode,
            links: attributes.links,
            mode: attributes.mode,
            user: attributes.owner.user,
            group: attributes.owner.group,
            length: attributes.length,
            modified: attributes.modified,
            device_number: attributes.device_number,
            target: self.target,
            xattrs: self.xattrs,
            changed_outside: self.changed_outside,
            too_long: is_file && attributes.length > contents_length_max,
        }
    }
}

/// What a transaction found at a path.
enum FoundAt {
    /// The transaction has not changed it, or its snapshot still shows it.
    Unknown,
    /// There was nothing.
    Nothing,
    /// Outside writers have changed or removed the file, and the view remembers what it was.
    Remembered(Arc<Base>, OldFile),
    /// Outside writers have removed it, and nobody knows what it was.
    Lost,
}

impl<D: Disk> Transaction<D> {
    /// The object that this side has at a path.
    pub fn object_of(&self, side: Side, path: &[u8]) -> Result<Option<SnapshotObject>> {
        let landed = self.landed()?;
        let found = match side {
            // An undo changes objects that are in limbo.
            Side::Snapshot if self.past().is_none() => self.found_at(path)?,
            _ => FoundAt::Unknown,
        };
        let is_lost = match found {
            FoundAt::Nothing => return Ok(None),
            FoundAt::Remembered(base, old) => return Ok(Some(self.remembered(&base, old))),
            FoundAt::Lost => true,
            FoundAt::Unknown => false,
        };
        let snapshot = self.state_of(side, &landed);
        let Some((base, stat)) = snapshot.resolve(path)? else {
            return Ok(None);
        };
        let target = match stat.kind {
            Kind::Symlink => snapshot.read_link(&base)?,
            _ => Vec::new(),
        };
        let attributes = self.core.inode_numbers.attributes_of(&stat);
        let mut xattrs = snapshot.xattrs(&base)?;
        xattrs.sort();
        Ok(Some(SnapshotObject {
            object: base.serial,
            kind: stat.kind,
            xattrs,
            attributes,
            target,
            changed_outside: is_lost || self.is_changed_outside(&base),
        }))
    }

    /// What the transaction found at a path that it has changed.
    fn found_at(&self, path: &[u8]) -> Result<FoundAt> {
        let found = self.wait_with(|view| {
            let found = view.found_before(path);
            Ok(found.map(|base| base.map(|base| (view.old_texts.get(&base), base))))
        })?;
        Ok(match found {
            None => FoundAt::Unknown,
            Some(None) => FoundAt::Nothing,
            Some(Some((old, base))) => match old {
                Some(old) if self.is_changed_outside(&base) => FoundAt::Remembered(base, old),
                None if self.core.stat_now(&base) == Err(Errno::STALE) && !self.is_kept(&base) => {
                    FoundAt::Lost
                }
                _ => FoundAt::Unknown,
            },
        })
    }

    /// Whether a commit has removed the object, so that it is in limbo for the snapshot.
    fn is_kept(&self, base: &Base) -> bool {
        let state = base.state();
        let removed = state.changed().and_then(|changed| changed.removed);
        removed.is_some()
    }

    fn remembered(&self, base: &Arc<Base>, old: OldFile) -> SnapshotObject {
        let known = old.xattrs.or_else(|| {
            let snapshot = Snapshot::new(&self.core, self.at());
            snapshot.xattrs(base).ok()
        });
        let mut xattrs = known.unwrap_or_default();
        xattrs.sort();
        SnapshotObject {
            object: base.serial,
            kind: old.stat.kind,
            attributes: self.core.inode_numbers.attributes_of(&old.stat),
            xattrs,
            target: Vec::new(),
            changed_outside: false,
        }
    }

    /// Fills the buffer from the contents of a path on this side, with zeros past their end.
    pub fn read_of(&self, side: Side, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
        let landed = self.landed()?;
        if side == Side::Snapshot
            && let FoundAt::Remembered(_, old) = self.found_at(path)?
        {
            let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
            let old = old.contents.get(start..).unwrap_or_default();
            let count = old.len().min(buffer.len());
            buffer[..count].copy_from_slice(&old[..count]);
            buffer[count..].fill(0);
            return Ok(());
        }
        let snapshot = self.state_of(side, &landed);
        let (base, _) = snapshot.resolve(path)?.ok_or(Errno::STALE)?;
        snapshot.read(&base, offset, buffer)?;
        // If the transaction has ended, this may have read versions that were already
        // dropped.
        self.landed().map(drop)
    }

    /// Validation notes in the object's history what outside writers had changed when a commit
    /// changed it again. Their later changes show in its change time.
    fn is_changed_outside(&self, base: &Base) -> bool {
        let now = self.core.stat_now(base).map(|stat| Stamp::of(&stat));
        let state = base.state();
        let changed = state.changed();
        let noted = changed.and_then(|changed| {
            let doubt = changed.doubt.map(|(until, _)| until);
            changed.outside.max(doubt)
        });
        let own = changed.and_then(|changed| changed.own_stamp);
        let is_late = |at| at >= self.began_change_time();
        noted.is_some_and(is_late)
            || match now {
                Ok(now) => own.is_none_or(|own| own.stamp != now) && is_late(now.changed()),
                Err(_) => changed.is_none_or(|changed| changed.removed.is_none()),
            }
    }

    /// The inode number and the change time of what the base has at a path now, for [`EqualFile`].
    ///
    /// [`EqualFile`]: atomdir_types::EqualFile
    pub fn seen_in_base(&self, path: &[u8]) -> Result<Option<(u64, Timestamp)>> {
        let landed = self.landed()?;
        let found = self.state_of(Side::Newest, &landed).resolve(path)?;
        Ok(found.map(|(_, stat)| (stat.identity.inode, stat.changed)))
    }

    fn state_of<'a>(&'a self, side: Side, landed: &'a Landed) -> Snapshot<'a, D> {
        match side {
            Side::Snapshot => Snapshot::with_landed(&self.core, self.at(), landed),
            Side::Newest => Snapshot::new(&self.core, Sequence::AFTER_ALL),
        }
    }

    /// Fails if the transaction has ended.
    fn landed(&self) -> Result<Arc<Landed>> {
        self.wait_with(|view| Ok(view.landed.clone()))
    }
}
