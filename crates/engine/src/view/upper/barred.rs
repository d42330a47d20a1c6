//! Keeps overlayfs from copying old objects up that would come out wrong, and remembers that it
//! tried to.
//!
//! Without privileges overlayfs has no index. If a file has several names, overlayfs
//! would make a copy for one of them, and the others would still show the old contents.
//! Nor does overlayfs copy extended attributes that have the names of overlay
//! attributes, and copying capabilities fails. An owner or group other than the user's own has no number in
//! the user's namespace, so overlayfs refuses to copy such an object (`EOVERFLOW`).
//!
//! Invariants
//! 1. An ordinary user's overlay copies none of these *barred* objects up. The program's call fails.
//! 2. Each such failure is remembered, since the program may go on all the same and exit with 0.
//!    Commands are then not committed by themselves ([`DeviationKind::ChangeRefused`]).
//! 3. Merely reading a barred object is no failure.
//!
//! While overlayfs copies a file or a directory, it asks for its flags ([`View::before_copy_up`]).
//! That is after the contents and attributes were copied, and before the copy has a name, so an
//! error drops the copy. Overlayfs refuses other owners before that, and the lower layer would not
//! notice. So it shows a barred file or directory of another owner as the user's own, if the user
//! could change it at all.
//!
//! Overlayfs does not ask for the flags of links and special files. For these the lower layer lists one more
//! extended attribute, which an ordinary user may not read: the copy then fails with ENODATA.
//! Programs do not see its name, as overlayfs hides all of `trusted.` from them. A program that
//! lists the attributes of such an object counts as one that tried to change it.
//!
//! overlayfs would take a character device of number 0 in the base for its own sign that
//! a name is gone. Programs would not see it, and would remove it with its directory. So
//! looking it up fails.
//!
//! Mount points are barred by that attribute, for root, too: root may read the attribute,
//! but that fails with EROFS. They cannot be changed in an exact view either.

use atomdir_disk::{Disk, Errno, Kind, Owner, Result};
use atomdir_types::{Deviation, DeviationKind};

use super::OverlayPrefix;
use crate::ids::NodeId;
use crate::lock;
use crate::view::{NodeAttributes, View};

const BAR: &[u8] = b"trusted.atomdir.unchangeable";
const CAPABILITIES: &[u8] = b"security.capability";
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// More refused changes than these are not remembered.
const REFUSED_MAX: usize = 1000;

/// What an ordinary user's overlay must not copy up.
#[derive(Default)]
pub(crate) struct Bars {
    /// The owner and group that have a number in the user's namespace; `None` in root's overlay.
    own: Option<Owner>,
    /// The paths of the objects that overlayfs tried to copy, in the order of the first tries.
    refused: Vec<Vec<u8>>,
}

impl Bars {
    pub(super) fn for_user(own: Owner) -> Bars {
        Bars {
            own: Some(own),
            refused: Vec::new(),
        }
    }

    pub(super) fn deviations(&self) -> impl Iterator<Item = Deviation> + '_ {
        self.refused.iter().map(|path| Deviation {
            path: path.clone(),
            kind: DeviationKind::ChangeRefused,
        })
    }

    pub(crate) fn count_refused(&self) -> usize {
        self.refused.len()
    }

    /// For tries that were no program's.
    pub(crate) fn forget_refused(&mut self, from: usize) {
        self.refused.truncate(from);
    }

    fn is_foreign(&self, attributes: &NodeAttributes) -> bool {
        self.own.is_some_and(|own| attributes.owner != own)
    }
}

impl<D: Disk> View<D> {
    /// Lists the extended attributes of an object of the lower layer.
    pub(crate) fn lower_xattr_names(&mut self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        self.show_before_copy(id)?;
        let mut names = self.xattr_names(id)?;
        if self.is_mount_point(id)? {
            names.push(BAR.to_vec());
            return Ok(names);
        }
        if self.is_barred(id, &names)? {
            if asks_for_flags(self.node(id)?.kind) {
                // Overlayfs would fail to copy them before it asks for the flags.
                names.retain(|name| name != CAPABILITIES);
            } else {
                names.push(BAR.to_vec());
                self.note_refused(id);
            }
        }
        Ok(names)
    }

    /// Fails if overlayfs must not copy the object, which it is about to do.
    pub(crate) fn before_copy_up(&mut self, id: NodeId) -> Result<()> {
        if !self.lower || self.bars.own.is_none() || self.is_mount_point(id)? {
            return Ok(());
        }
        let names = self.xattr_names(id)?;
        if !self.is_barred(id, &names)? {
            return Ok(());
        }
        self.note_refused(id);
        Err(Errno::PERM)
    }

    /// The attributes that the lower layer shows in place of an object's own.
    pub(crate) fn lower_attributes(&self, mut attributes: NodeAttributes) -> NodeAttributes {
        let Some(own) = self.bars.own else {
            return attributes;
        };
        let NodeAttributes {
            owner, mode, kind, ..
        } = attributes;
        if !self.bars.is_foreign(&attributes) || !asks_for_flags(kind) {
            return attributes;
        }
        if owner.user == own.user {
            attributes.owner = own;
        } else if mode & WRITABLE_BY_OTHERS != 0 {
            // As group or as others, the user has at most these rights, and the base checks them.
            attributes.mode = mode & !0o700 | (mode & 0o070) << 3 | (mode & 0o007) << 6;
            attributes.owner = own;
        }
        attributes
    }

    fn is_barred(&mut self, id: NodeId, names: &[Vec<u8>]) -> Result<bool> {
        if self.bars.own.is_none() {
            return Ok(false);
        }
        let attributes = self.attributes(id)?;
        if self.bars.is_foreign(&attributes) {
            return Ok(true);
        }
        let cannot_copy = |name: &Vec<u8>| OverlayPrefix::User.covers(name) || name == CAPABILITIES;
        Ok(attributes.kind != Kind::Directory
            && (attributes.links > 1 || names.iter().any(cannot_copy)))
    }

    fn note_refused(&mut self, id: NodeId) {
        let path = self.path(id);
        if self.bars.refused.len() < REFUSED_MAX && !self.bars.refused.contains(&path) {
            self.bars.refused.push(path);
            lock(&self.core.survey).forget();
        }
    }

    pub(in crate::view) fn refuse_whiteout(&self, attributes: &NodeAttributes) -> Result<()> {
        let NodeAttributes {
            kind,
            device_number,
            ..
        } = attributes;
        let is_whiteout = *kind == Kind::CharacterDevice && *device_number == 0;
        if self.lower && is_whiteout {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(())
    }

    pub(crate) fn lower_xattr(&mut self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == BAR && self.is_mount_point(id)? {
            return Err(Errno::ROFS);
        }
        self.xattr(id, name)
    }

    fn is_mount_point(&self, id: NodeId) -> Result<bool> {
        let base = &self.node(id)?.base;
        Ok(base.as_ref().is_some_and(|base| base.is_mount_point()))
    }
}

/// Whether overlayfs asks for the flags of such an object when it copies it.
fn asks_for_flags(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Directory)
}
