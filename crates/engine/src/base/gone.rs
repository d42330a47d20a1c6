//! Stand-ins for objects of the base that cannot be found any more, or that may be others than those
//! that a transaction has worked with: see `view::upper::over_base`.
//!
//! Invariant: no object of the base has a stand-in's identity. So validation never finds a stand-in
//! where it is expected, and a change that depends on one conflicts.

use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Kind, Name};

use crate::base::core::Core;
use crate::base::{Base, Place};

/// A birth time that no object has. Unknown birth times are 0, and those of mount points the highest
/// number.
const BIRTH: u64 = u64::MAX - 1;

impl Base {
    pub fn is_stand_in(&self) -> bool {
        self.identity().birth == BIRTH
    }
}

impl<D: Disk> Core<D> {
    /// A new stand-in for what a name led to.
    pub fn make_stand_in(&self, kind: Kind, directory: &Arc<Base>, name: &Name) -> Arc<Base> {
        let serial = self.next_serial();
        let identity = Identity {
            inode: serial,
            birth: BIRTH,
        };
        let place = Place::Entry {
            parent: directory.clone(),
            name: name.clone(),
        };
        Base::new(serial, kind, identity, place)
    }
}
