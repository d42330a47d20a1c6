//! Opens objects of the base where they are, and nothing else that may be there.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Name, Result, Stat};

use crate::base::Place;
use crate::base::core::{Core, gone_is_stale};
use crate::base::handles::HandleKey;
use crate::base::mount_point::is_mount_point;
use crate::base::moving::LookedFor;
use crate::lock;

impl<D: Disk> Core<D> {
    /// A regular file's contents, for reading.
    pub fn contents(&self, identity: Identity, place: &Place) -> Result<Arc<D::Handle>> {
        // A held file has no name in limbo, even if its place says so.
        if let Place::Held | Place::Limbo(_) = place
            && let Some(handle) = self.handles.held(identity)
        {
            return Ok(handle);
        }
        let key = HandleKey::Contents(identity);
        if let Some(handle) = self.handles.get(key) {
            return Ok(handle);
        }
        Ok(self.open_contents(identity, place)?.0)
    }

    /// Opens a regular file's contents as [`Core::contents`] does, if they are not open yet, and
    /// returns its attributes, with one look for both.
    pub fn newly_opened(&self, identity: Identity, place: &Place) -> Option<Result<Stat>> {
        let is_in_base = matches!(place, Place::Entry { .. });
        let is_open = || self.handles.get(HandleKey::Contents(identity)).is_some();
        if !is_in_base || self.ahead.object(identity).is_some() || is_open() {
            return None;
        }
        Some(self.open_contents(identity, place).map(|(_, stat)| stat))
    }

    fn open_contents(&self, identity: Identity, place: &Place) -> Result<(Arc<D::Handle>, Stat)> {
        let opened = self.open_by(place, identity, &mut LookedFor::new(), |directory, name| {
            self.checked(self.disk.open(directory, name, Access::Read), identity)
        });
        let (handle, stat) = opened?;
        let handle = Arc::new(handle);
        let key = HandleKey::Contents(identity);
        self.handles.insert(key, handle.clone());
        Ok((handle, stat))
    }

    /// Opens the object at a place. Fails with `ESTALE` if it is not there, and with
    /// `EAGAIN` while another process has a lease on it.
    pub fn open_at(&self, place: &Place, identity: Identity, access: Access) -> Result<D::Handle> {
        self.open_within(place, identity, access, &mut LookedFor::new())
    }

    pub(super) fn open_within(
        &self,
        place: &Place,
        identity: Identity,
        access: Access,
        looked_for: &mut LookedFor,
    ) -> Result<D::Handle> {
        self.open_by(place, identity, looked_for, |directory, name| {
            self.open_entry(directory, name, identity, access)
        })
    }

    /// Like [`Core::open_at`], for a file that a logged commit needs: waits for
    /// leases, since otherwise a process that keeps its lease could poison the store.
    /// The kernel ends leases in time.
    pub fn open_logged(
        &self,
        place: &Place,
        identity: Identity,
        access: Access,
    ) -> Result<D::Handle> {
        self.open_by(place, identity, &mut LookedFor::new(), |directory, name| {
            self.check_identity(self.disk.open_waiting(directory, name, access), identity)
        })
    }

    /// Opens an entry that must be the object.
    pub(super) fn open_entry(
        &self,
        directory: &D::Handle,
        name: &Name,
        identity: Identity,
        access: Access,
    ) -> Result<D::Handle> {
        let _alone = (access == Access::ReadWrite).then(|| lock(&self.probing));
        self.check_identity(self.disk.open(directory, name, access), identity)
    }

    fn check_identity(&self, opened: Result<D::Handle>, identity: Identity) -> Result<D::Handle> {
        Ok(self.checked(opened, identity)?.0)
    }

    fn checked(&self, opened: Result<D::Handle>, identity: Identity) -> Result<(D::Handle, Stat)> {
        let handle = opened.map_err(gone_is_stale)?;
        let stat = self.disk.stat(&handle)?;
        match stat.identity == identity {
            true => Ok((handle, stat)),
            false => Err(Errno::STALE),
        }
    }

    fn open_by<T>(
        &self,
        place: &Place,
        identity: Identity,
        looked_for: &mut LookedFor,
        open: impl Fn(&D::Handle, &Name) -> Result<T>,
    ) -> Result<T> {
        if is_mount_point(identity) {
            return Err(Errno::ROFS);
        }
        match place {
            // The root's own handle serves every access a directory allows.
            Place::Root => Err(Errno::INVAL),
            Place::Held => Err(Errno::STALE),
            Place::Entry { .. } | Place::Limbo(_) => {
                self.at_place(place, identity, looked_for, open)
            }
        }
    }
}
