//! Asks whether other programs use a file of the base.

use atomdir_disk::{Access, Disk, PartLock, Result};

use crate::base::Base;
use crate::base::core::Core;
use crate::lock;

impl<D: Disk> Core<D> {
    /// Whether another program has the file open for writing. The disk may take a lease for a moment,
    /// so that a thread of this process could not open the file for writing meanwhile.
    pub fn is_open_for_writing(&self, file: &D::Handle) -> Result<bool> {
        let _alone = lock(&self.probing);
        self.disk.is_open_for_writing(file)
    }

    /// The lock that another program has on a part of a file, as databases have while they use it. No
    /// lock is known of a file that this process cannot open.
    pub fn part_lock(&self, base: &Base) -> Option<PartLock> {
        let file = self.open_now(base, Access::Read).ok()?;
        self.disk.part_lock(&file).ok()?
    }

    /// Opens the file where it is in the base now, for a question about its users.
    pub fn open_now(&self, base: &Base, access: Access) -> Result<D::Handle> {
        let (identity, place) = base.identity_and_place();
        self.open_at(&place, identity, access)
    }
}
