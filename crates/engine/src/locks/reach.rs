//! How far a lock on a subtree reaches. Below its root it covers each object that its
//! holder may change or, for a shared lock, read. Otherwise anyone who may write one
//! directory could hold up everybody else's commits to directories below it that are
//! closed to them.
//!
//! The permissions are those that the base has when somebody meets the lock, since
//! they may change while the lock is held.

use std::sync::Arc;

use atomdir_disk::Disk;
use atomdir_types::LockMode;

use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::present;
use crate::base::{Base, above};

/// Whether a lock covers an object below the one it is on.
#[derive(Clone)]
pub(crate) struct Reach(Arc<Covers>);

type Covers = dyn Fn(&Arc<Base>) -> bool + Send + Sync;

impl Reach {
    pub fn everything() -> Reach {
        Reach(Arc::new(|_| true))
    }

    /// Covers the objects that the holder of a lock on `top` may change or read. An object whose
    /// permissions cannot be read is covered as well: the lock must not fail its holder.
    pub fn of_holder<D: Disk>(
        core: &Arc<Core<D>>,
        top: &Arc<Base>,
        mode: LockMode,
        holder: &Credentials,
    ) -> Reach {
        if holder.user == 0 {
            return Reach::everything();
        }
        let core = core.clone();
        let (top, holder) = (top.serial, holder.clone());
        let wanted = match mode {
            LockMode::Shared => Permission::Read,
            LockMode::Exclusive => Permission::Write,
        };
        Reach(Arc::new(move |base| {
            let may = |base: &Arc<Base>, wanted| may(&core, base, &holder, wanted);
            let mut between = above(base).take_while(|above| above.serial != top);
            between.all(|directory| may(&directory, Permission::Search)) && may(base, wanted)
        }))
    }

    pub fn covers(&self, base: &Arc<Base>) -> bool {
        (self.0)(base)
    }
}

fn may<D: Disk>(
    core: &Core<D>,
    base: &Arc<Base>,
    holder: &Credentials,
    wanted: Permission,
) -> bool {
    present::permissions(core, base, holder).map_or(true, |allowed| allowed & wanted as u32 != 0)
}
