//! The overlay of a native view: the transaction's view becomes its lower layer, and at the end
//! its upper layer becomes the view. See `view::upper`.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use atomdir_disk::{Disk, Owner, Result};
use atomdir_types::Deviation;

use crate::base::survey::BeyondOverlay;
use crate::names;
use crate::transaction::Transaction;
use crate::view::OverlayPrefix;

impl<D: Disk> Transaction<D> {
    /// Makes the view the lower layer of an overlay, which nothing changes
    /// until [`take_over_upper`](Transaction::take_over_upper).
    pub fn become_lower(&self) -> Result<()> {
        self.wait_with(|view| {
            view.prepare_upper()?;
            view.lower = true;
            self.lower.store(true, Ordering::Release);
            Ok(())
        })
    }

    /// Like [`become_lower`](Transaction::become_lower), for an overlay whose lower layer is the base
    /// itself. The transaction must hold the whole store ([`Store::hold_whole`]).
    ///
    /// [`Store::hold_whole`]: crate::Store::hold_whole
    pub fn lie_over_base(&self) -> Result<()> {
        self.wait_with(|view| {
            view.over_base = true;
            Ok(())
        })?;
        self.over_base.store(true, Ordering::Release);
        self.become_lower()
    }

    /// Whether the lower layer of its overlay is, or was, the base itself.
    pub fn is_over_base(&self) -> bool {
        self.over_base.load(Ordering::Acquire)
    }

    /// The directory, relative to the control directory, that has the overlay's `upper` and
    /// `work`. `None` if the transaction has no overlay.
    pub fn layers(&self) -> Option<PathBuf> {
        let stage = Path::new(names::STAGE).join(self.id.to_string());
        self.is_lower().then_some(stage)
    }

    /// How its overlay must be mounted.
    pub fn overlay_prefix(&self) -> OverlayPrefix {
        OverlayPrefix::of(&self.core.options.privileges)
    }

    /// Whether its changes are in an upper layer.
    pub fn is_lower(&self) -> bool {
        self.lower.load(Ordering::Acquire)
    }

    /// Makes an upper layer's changes the view's own. The overlay must have ended, or be
    /// read-only for good. If this fails, either nothing has changed and it can be tried again, or
    /// the transaction has ended, or it can only be aborted. Lists what overlayfs has done
    /// otherwise than a plain directory would.
    pub fn take_over_upper(&self) -> Result<Vec<Deviation>> {
        let began = self.began_change_time();
        self.wait_with(|view| {
            view.refuse_while_nested()?;
            self.leave_to_user();
            let (taken, deviations) = view.take_over_upper(began)?;
            *view = taken;
            self.lower.store(false, Ordering::Release);
            Ok(deviations)
        })
    }

    /// Finds an object that the overlay of a user with this owner and group cannot copy up. Looks at
    /// `objects_max` objects at most.
    pub fn beyond_overlay(&self, own: Owner, objects_max: usize) -> Result<Option<BeyondOverlay>> {
        self.core.beyond_overlay(own, objects_max)
    }

    /// How many objects overlayfs was kept from changing so far.
    pub fn count_refused(&self) -> Result<usize> {
        self.wait_with(|view| Ok(view.bars.count_refused()))
    }

    /// Forgets those after so many: a nested commit has tried to change them, and has failed for it.
    pub fn forget_refused(&self, from: usize) -> Result<()> {
        self.wait_with(|view| {
            view.bars.forget_refused(from);
            Ok(())
        })
    }
}
