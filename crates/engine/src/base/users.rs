//! Asks whether other programs use a file of the base.

use atomdir_disk::{Disk, Result};

use crate::base::core::Core;
use crate::lock;

impl<D: Disk> Core<D> {
    /// Whether another program has the file open for writing. The disk may take a lease for a moment,
    /// so that a thread of this process could not open the file for writing meanwhile.
    pub fn is_open_for_writing(&self, file: &D::Handle) -> Result<bool> {
        let _alone = lock(&self.probing);
        self.disk.is_open_for_writing(file)
    }
}
