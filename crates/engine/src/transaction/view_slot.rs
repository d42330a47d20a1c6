//! A transaction's view behind a lock. A commit does not hold that lock: it takes the
//! view out. Threads that must not wait, such as the workers that serve the views of
//! all transactions, then learn at once that the view is being committed. When it is
//! back, the listeners are called.

use crate::sync;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use atomdir_disk::{Disk, Errno};

use crate::ids::NodeId;
use crate::lock;
use crate::view::{LowerView, View};

pub(crate) struct ViewSlot<D: Disk> {
    slot: Mutex<Slot<D>>,
    returned: Condvar,
    /// Called when a commit has put the view back.
    listeners: Mutex<Vec<Listener>>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

/// The view while no commit has it; `None` once the transaction has ended.
pub(crate) struct Slot<D: Disk> {
    view: Option<View<D>>,
    is_committing: bool,
    /// The nodes that the kernel has forgotten while a commit has the view.
    forgotten: Vec<(NodeId, u64)>,
}

impl<D: Disk> Deref for Slot<D> {
    type Target = Option<View<D>>;

    fn deref(&self) -> &Option<View<D>> {
        &self.view
    }
}

impl<D: Disk> DerefMut for Slot<D> {
    fn deref_mut(&mut self) -> &mut Option<View<D>> {
        &mut self.view
    }
}

impl<D: Disk> ViewSlot<D> {
    pub fn new(view: View<D>) -> ViewSlot<D> {
        let slot = Slot {
            view: Some(view),
            is_committing: false,
            forgotten: Vec::new(),
        };
        ViewSlot {
            slot: Mutex::new(slot),
            returned: Condvar::new(),
            listeners: Mutex::default(),
        }
    }

    /// Locks the slot; waits for a commit to end.
    pub fn lock(&self) -> MutexGuard<'_, Slot<D>> {
        let mut slot = lock(&self.slot);
        while slot.is_committing {
            slot = sync::wait(&self.returned, slot);
        }
        slot
    }

    pub fn on_return(&self, listener: Listener) {
        lock(&self.listeners).push(listener);
    }

    /// Fails with `ERESTART` while the view is being committed. The listeners are
    /// called afterwards.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, Slot<D>>, Errno> {
        let slot = lock(&self.slot);
        match slot.is_committing {
            true => Err(Errno::RESTART),
            false => Ok(slot),
        }
    }

    /// Returns how many nodes are left, if that is known at once.
    pub fn forget(&self, node: NodeId, count: u64) -> Option<u64> {
        let mut slot = lock(&self.slot);
        if slot.is_committing {
            slot.forgotten.push((node, count));
            return None;
        }
        let view = slot.view.as_mut()?;
        view.forget(node, count);
        Some(view.nodes.count())
    }

    /// Without a view there is nothing to put back: a lazy commit that is set aside meanwhile gives
    /// its view back here.
    pub fn take_for_commit(&self) -> Committing<'_, D> {
        let mut slot = self.lock();
        let view = slot.view.take();
        slot.is_committing = view.is_some();
        Committing {
            is_taken_over: view.is_none(),
            view,
            slot: self,
        }
    }

    /// Ends a commit. `None`: the transaction has ended.
    pub fn give_back(&self, mut view: Option<View<D>>) {
        let mut slot = lock(&self.slot);
        let forgotten = std::mem::take(&mut slot.forgotten);
        if let Some(view) = &mut view {
            for (node, count) in forgotten {
                view.forget(node, count);
            }
            view.record_after_commit();
            view.is_validated = false;
        }
        slot.view = view;
        slot.is_committing = false;
        drop(slot);
        self.returned.notify_all();
        let listeners = lock(&self.listeners).clone();
        listeners.iter().for_each(|listener| listener());
    }
}

/// For a view that goes on serving others: it is locked for each look.
impl<D: Disk> LowerView<D> for ViewSlot<D> {
    fn look(&self, look: &mut dyn FnMut(&View<D>)) {
        if let Some(view) = self.lock().as_ref() {
            look(view);
        }
    }
}

/// The view during a commit. Dropping this puts the view back, if the commit has not consumed it.
pub(crate) struct Committing<'a, D: Disk> {
    pub view: Option<View<D>>,
    /// Somebody else gives the view back.
    is_taken_over: bool,
    slot: &'a ViewSlot<D>,
}

impl<D: Disk> Committing<'_, D> {
    /// Takes the view over, for a commit that is not over yet. The caller gives it back.
    pub fn take_over(&mut self) -> Option<View<D>> {
        self.is_taken_over = true;
        self.view.take()
    }
}

impl<D: Disk> Drop for Committing<'_, D> {
    fn drop(&mut self) {
        if !self.is_taken_over {
            self.slot.give_back(self.view.take());
        }
    }
}
