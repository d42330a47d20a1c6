//! No process waits for itself.
//!
//! A call fails with `EDEADLK` if its process holds a transaction for which the call waits, be it by
//! way of transactions that wait for locks, and of waiting calls of other processes. It is the call that fails,
//! also if a transaction's request for a lock closes the circle: no transaction fails for a call.

use std::collections::HashSet;

use atomdir_engine::TransactionId;
use atomdir_fuse::Request;

use crate::Guarded;
use crate::processes::process_of;

impl Guarded {
    pub(crate) fn would_wait_for_itself(
        &self,
        request: &Request,
        holders: &[TransactionId],
    ) -> bool {
        let Some(holds) = self.holds.get() else {
            return false;
        };
        let process = process_of(request.process);
        let others = self.known.waits.of_others(request.unique);
        let mut seen = HashSet::new();
        let mut open = holders.to_vec();
        while let Some(holder) = open.pop() {
            if !seen.insert(holder) {
                continue;
            }
            if holds(holder, process) {
                return true;
            }
            open.extend(self.guard.awaited_by(holder));
            let held = others.iter().filter(|(other, _)| holds(holder, *other));
            open.extend(held.flat_map(|(_, awaited)| awaited));
        }
        false
    }
}
