//! How far a lock on a subtree reaches. Below its root it covers each object that its
//! holder may change or, for a shared lock, read. Otherwise anyone who may write one
//! directory could hold up everybody else's commits to directories below it that are
//! closed to them. A lock that was granted by leave (`leave`) reaches nothing once that is withdrawn.
//!
//! The permissions are those that the base has when somebody meets the lock, since
//! they may change while the lock is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_disk::Disk;
use atomdir_types::LockMode;

use super::leave;
use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::present;
use crate::base::{Base, above};

/// Whether a lock covers an object below the one it is on.
#[derive(Clone)]
pub(crate) struct Reach {
    covers: Arc<Covers>,
    /// The lock was granted by leave, which was there when somebody last met the lock.
    by_leave: Option<Arc<AtomicBool>>,
}

type Covers = dyn Fn(&Arc<Base>) -> bool + Send + Sync;

impl Reach {
    pub fn everything() -> Reach {
        Reach {
            covers: Arc::new(|_| true),
            by_leave: None,
        }
    }

    /// Covers the objects that the holder of a lock on `top` may change or read, or lock by leave. An object whose
    /// permissions cannot be read is covered as well: the lock must not fail its holder.
    pub fn of_holder<D: Disk>(
        core: &Arc<Core<D>>,
        top: &Arc<Base>,
        (mode, by_leave): (LockMode, bool),
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
        let covers = move |base: &Arc<Base>| {
            let may = |base: &Arc<Base>, wanted| may(&core, base, &holder, wanted);
            let mut between = above(base).take_while(|above| above.serial != top);
            between.all(|directory| may(&directory, Permission::Search))
                && (may(base, wanted) || leave::has(&core, base, &holder))
        };
        Reach {
            covers: Arc::new(covers),
            by_leave: by_leave.then(|| Arc::new(AtomicBool::new(true))),
        }
    }

    pub fn covers(&self, base: &Arc<Base>) -> bool {
        (self.covers)(base)
    }

    pub fn is_by_leave(&self) -> bool {
        self.by_leave.is_some()
    }

    /// Whether a lock on `top` is in force. False for good once its leave was withdrawn.
    pub fn is_in_force(&self, top: &Arc<Base>) -> bool {
        let Some(leave) = &self.by_leave else {
            return true;
        };
        let is_in_force = leave.load(Ordering::Acquire) && self.covers(top);
        leave.store(is_in_force, Ordering::Release);
        is_in_force
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
