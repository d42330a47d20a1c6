//! Whether a user may do something to an object, by its mode and access list in
//! the view. The kernel checks this itself for all calls that go through a
//! mounted view; this module checks it for other requests.

use atomdir_disk::{Disk, Errno, Result};

use super::View;
use crate::base::acl::{self, AccessControlList};
use crate::base::credentials::{Credentials, Permission};
use crate::ids::NodeId;

impl<D: Disk> View<D> {
    /// Fails with `EACCES` if the user may not.
    pub fn require(
        &mut self,
        id: NodeId,
        credentials: &Credentials,
        permission: Permission,
    ) -> Result<()> {
        if credentials.user == 0 {
            return Ok(());
        }
        let attributes = self.attributes(id)?;
        let list = match self.xattr(id, acl::ACCESS) {
            Ok(bytes) => AccessControlList::decode(&bytes)?,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => AccessControlList::of_mode(attributes.mode),
            Err(error) => return Err(error),
        };
        let allowed = list.permissions(attributes.owner, credentials);
        if allowed & permission as u32 != 0 {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
}
