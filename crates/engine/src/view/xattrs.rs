//! Extended attributes, including ACLs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result};

use super::View;
use super::node::{Dress, OwnBody};
use crate::base::acl::{self, AccessControlList};
use crate::base::privileges::CAPABILITY;
use crate::base::{Base, Xattrs};
use crate::ids::NodeId;

const CREATE_ONLY: u32 = 1;
const REPLACE_ONLY: u32 = 2;
const SET_GROUP_ID: u32 = 0o2000;

/// Changes of extended attributes: each is set to a value, or removed.
pub(super) type XattrChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

pub(super) fn set_all(xattrs: Xattrs) -> XattrChanges {
    let set = xattrs.into_iter();
    set.map(|(name, value)| (name, Some(value))).collect()
}

impl<D: Disk> View<D> {
    pub fn xattr(&mut self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        if let Some(changed) = node.own().and_then(|own| own.xattrs.get(name)) {
            return changed.clone().ok_or(Errno::NODATA);
        }
        match node.base.clone() {
            Some(base) if self.shown.is_some() => {
                let shown = self.show_xattrs(&base)?.into_iter();
                let found = shown.into_iter().find(|(of, _)| of == name);
                found.map(|(_, value)| value).ok_or(Errno::NODATA)
            }
            Some(base) => {
                self.settle_object(&base)?;
                match self.snapshot().xattr(&base, name) {
                    Err(Errno::STALE) => {
                        let known = self.xattrs_before_removal(id, &base)?.into_iter();
                        let found = known.into_iter().find(|(of, _)| of == name);
                        found.map(|(_, value)| value).ok_or(Errno::NODATA)
                    }
                    found => found,
                }
            }
            None => match self.taken_over(id)? {
                Some(object) => self.core.disk.xattr(&object, name),
                None => Err(Errno::NODATA),
            },
        }
    }

    /// Those of a changed file that outside writers have removed, as far as they are known.
    fn xattrs_before_removal(&self, id: NodeId, base: &Base) -> Result<Xattrs> {
        if self.node(id)?.contents().is_none() {
            return Err(Errno::STALE);
        }
        let old = self.old_texts.get(base);
        Ok(old.and_then(|old| old.xattrs).unwrap_or_default())
    }

    /// Opens the staged object, if it has extended attributes of its own.
    fn taken_over(&mut self, id: NodeId) -> Result<Option<D::Handle>> {
        let own = self.node(id)?.own();
        let staged = own.filter(|own| own.dress != Dress::Bare);
        let Some(staged) = staged.and_then(|own| own.staged.clone()) else {
            return Ok(None);
        };
        self.open_staged(&staged).map(Some)
    }

    pub fn xattr_names(&mut self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        let node = self.node(id)?;
        let mut names: BTreeSet<Vec<u8>> = match node.base.clone() {
            Some(base) => {
                let shown = match self.show_xattrs(&base) {
                    Err(Errno::STALE) => self.xattrs_before_removal(id, &base)?,
                    shown => shown?,
                };
                shown.into_iter().map(|(name, _)| name).collect()
            }
            None => match self.taken_over(id)? {
                Some(object) => self.core.disk.xattr_names(&object)?.into_iter().collect(),
                None => BTreeSet::new(),
            },
        };
        for (name, value) in self.node(id)?.own().into_iter().flat_map(|own| &own.xattrs) {
            match value {
                Some(_) => names.insert(name.clone()),
                None => names.remove(name),
            };
        }
        Ok(names.into_iter().collect())
    }

    pub(crate) fn all_xattrs(&mut self, id: NodeId) -> Result<Xattrs> {
        let mut xattrs = Xattrs::new();
        for name in self.xattr_names(id)? {
            let value = self.xattr(id, &name)?;
            xattrs.push((name, value));
        }
        Ok(xattrs)
    }

    pub fn set_xattr(
        &mut self,
        id: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()> {
        self.refuse_privileged(name)?;
        if flags & (CREATE_ONLY | REPLACE_ONLY) != 0 {
            let exists = match self.xattr(id, name) {
                Ok(_) => true,
                Err(Errno::NODATA) => false,
                Err(error) => return Err(error),
            };
            match (flags, exists) {
                (CREATE_ONLY, true) => return Err(Errno::EXIST),
                (REPLACE_ONLY, false) => return Err(Errno::NODATA),
                _ => {}
            }
        }
        match name {
            acl::ACCESS | acl::DEFAULT if acl::is_empty(value) => {
                return self.remove_xattr(id, name);
            }
            acl::ACCESS => self.set_access_acl(id, value, kill_set_group_id)?,
            acl::DEFAULT => self.set_default_acl(id, Some(value))?,
            _ => {
                self.own_mut(id)?
                    .xattrs
                    .insert(name.to_vec(), Some(value.to_vec()));
            }
        }
        self.touch_changed(id)
    }

    pub fn remove_xattr(&mut self, id: NodeId, name: &[u8]) -> Result<()> {
        // The kernel removes a capability before a user writes to the file.
        if name != CAPABILITY {
            self.refuse_privileged(name)?;
        }
        match self.xattr(id, name) {
            // As removexattr(2) does. The kernel also removes a list to set an empty one.
            Err(Errno::NODATA) if name == acl::ACCESS || name == acl::DEFAULT => return Ok(()),
            present => drop(present?),
        }
        match name {
            acl::DEFAULT => self.set_default_acl(id, None)?,
            _ => {
                self.own_mut(id)?.xattrs.insert(name.to_vec(), None);
            }
        }
        self.touch_changed(id)
    }

    /// Refuses at once an attribute that the commit could not write.
    fn refuse_privileged(&self, name: &[u8]) -> Result<()> {
        let privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        if privileged && !self.core.options.privileges.all {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn touch_changed(&mut self, id: NodeId) -> Result<()> {
        let now = self.now();
        self.own_mut(id)?.attributes.changed = now;
        Ok(())
    }

    /// The mode bits of the list become the object's. A list that adds nothing to the mode is not
    /// kept.
    fn set_access_acl(&mut self, id: NodeId, value: &[u8], kill_set_group_id: bool) -> Result<()> {
        let list = AccessControlList::decode(value)?;
        let own = self.own_mut(id)?;
        let kept = if list.is_minimal() {
            None
        } else {
            Some(list.encode())
        };
        own.xattrs.insert(acl::ACCESS.to_vec(), kept);
        own.attributes.mode = own.attributes.mode & 0o7000 | list.mode_bits();
        if kill_set_group_id {
            own.attributes.mode &= !SET_GROUP_ID;
        }
        own.touched.mode = true;
        Ok(())
    }

    fn set_default_acl(&mut self, id: NodeId, value: Option<&[u8]>) -> Result<()> {
        if self.node(id)?.kind != Kind::Directory {
            return Err(Errno::ACCESS);
        }
        if let Some(value) = value {
            AccessControlList::decode(value)?;
        }
        self.delta_mut(id)?.default_acl = Some(value.map(Arc::from));
        self.own_mut(id)?
            .xattrs
            .insert(acl::DEFAULT.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Returns the ACL that new entries of the directory inherit. Cached, since
    /// every creation needs it.
    pub(super) fn default_acl(&mut self, id: NodeId) -> Result<Option<Arc<[u8]>>> {
        if let Some(known) = self
            .node(id)?
            .directory_delta()
            .and_then(|d| d.default_acl.clone())
        {
            return Ok(known);
        }
        let value: Option<Arc<[u8]>> = match self.xattr(id, acl::DEFAULT) {
            Ok(bytes) => Some(bytes.into()),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(error) => return Err(error),
        };
        self.delta_mut(id)?.default_acl = Some(value.clone());
        Ok(value)
    }

    pub(super) fn is_private_file(&self, id: NodeId) -> Result<bool> {
        let own = self.node(id)?.own();
        Ok(
            matches!(own.map(|own| &own.body), Some(OwnBody::File(contents)) if contents.base_limit == 0),
        )
    }
}
