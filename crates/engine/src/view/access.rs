//! Whether a user may do something to an object, by its mode and access list in
//! the view. The kernel checks this itself for all calls that go through a
//! mounted view; this module checks it for other requests.

use atomdir_disk::{Disk, Errno, Result};

use super::View;
use super::types::NodeAttributes;
use crate::base::acl::{self, AccessControlList};
use crate::base::credentials::{Credentials, Permission};
use crate::ids::NodeId;

const GROUP_BITS: u32 = 0o070;

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
        self.require_shown(id, &attributes, credentials, permission)
    }

    /// Like [`View::require`], by attributes that the view has just shown.
    pub fn require_shown(
        &mut self,
        id: NodeId,
        attributes: &NodeAttributes,
        credentials: &Credentials,
        permission: Permission,
    ) -> Result<()> {
        if credentials.user == 0 {
            return Ok(());
        }
        let of_mode = AccessControlList::of_mode(attributes.mode);
        // Like the kernel, do not look for a list where it would say no more: the owner's bits
        // are the mode's, and the group's are the mask.
        let is_mode_enough =
            credentials.user == attributes.owner.user || attributes.mode & GROUP_BITS == 0;
        let list = match is_mode_enough {
            true => of_mode,
            false => match self.xattr(id, acl::ACCESS) {
                Ok(bytes) => AccessControlList::decode(&bytes)?,
                Err(Errno::NODATA | Errno::OPNOTSUPP) => of_mode,
                Err(error) => return Err(error),
            },
        };
        let allowed = list.permissions(attributes.owner, credentials);
        if allowed & permission as u32 != 0 {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
}
