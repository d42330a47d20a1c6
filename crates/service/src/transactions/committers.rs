//! Which connection commits a transaction together with those of other stores.
//!
//! Invariants
//! 1. From the first step of such a commit to its end, the transaction is taken by the connection that
//!    asked for the step, unless the connection closes before. Steps of other connections are refused.
//!    So no client takes back a vote that another one has counted.
//! 2. A coordinator that nobody has taken is committed only after it was taken again, and every vote that
//!    counts then was cast after that. So the service may withdraw a vote that was not cast again since it
//!    began to ask for the coordinator.

use crate::clients::connections::ConnectionId;
use atomdir_disk::sync;
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct Committers(Mutex<State>);

#[derive(Default)]
struct State {
    taken: HashMap<TransactionId, Committer>,
    /// How often any transaction was taken.
    turns: u64,
}

struct Committer {
    by: Option<ConnectionId>,
    turn: u64,
    /// Before its vote it would have ended with its holders.
    was_held: bool,
}

impl Committers {
    fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.0)
    }

    pub(crate) fn take(&self, id: TransactionId, by: ConnectionId) -> Result<(), Failure> {
        let mut state = self.lock();
        let before = state.taken.get(&id);
        let was_held = before.is_some_and(|one| one.was_held);
        let other = before.and_then(|one| one.by);
        if other.is_some_and(|other| other != by) {
            let message = format!(
                "another process is committing transaction {id} together with those of other stores"
            );
            return Err(Failure::new(FailureKind::InUse, message)
                .with_hint("try again when it has ended, or wait for it with --wait"));
        }
        state.turns += 1;
        let (by, turn) = (Some(by), state.turns);
        let taken = Committer { by, turn, was_held };
        state.taken.insert(id, taken);
        Ok(())
    }

    pub(crate) fn require(&self, id: TransactionId, by: ConnectionId) -> Result<(), Failure> {
        match self.lock().taken.get(&id).and_then(|one| one.by) {
            Some(taker) if taker == by => Ok(()),
            _ => {
                let message = format!(
                    "this process has not begun to commit transaction {id} together with those of \
                     other stores"
                );
                Err(Failure::new(FailureKind::BadRequest, message))
            }
        }
    }

    /// The commit has ended. Returns whether the transaction would have ended with its holders before it.
    pub(crate) fn forget(&self, id: TransactionId) -> bool {
        let taken = self.lock().taken.remove(&id);
        taken.is_some_and(|one| one.was_held)
    }

    pub(crate) fn note_held(&self, id: TransactionId) {
        if let Some(one) = self.lock().taken.get_mut(&id) {
            one.was_held = true;
        }
    }

    /// The connection has closed. The transaction is in doubt, and a later commit may take it.
    pub(crate) fn leave(&self, id: TransactionId) {
        if let Some(one) = self.lock().taken.get_mut(&id) {
            one.by = None;
        }
    }

    pub(crate) fn taken_by(&self, by: ConnectionId) -> Vec<TransactionId> {
        let state = self.lock();
        let own = state.taken.iter().filter(|(_, one)| one.by == Some(by));
        own.map(|(id, _)| *id).collect()
    }

    pub(crate) fn is_taken(&self, id: TransactionId) -> bool {
        self.lock()
            .taken
            .get(&id)
            .is_some_and(|one| one.by.is_some())
    }

    /// Changes whenever the transaction is taken.
    pub(crate) fn turn(&self, id: TransactionId) -> u64 {
        self.lock().taken.get(&id).map_or(0, |one| one.turn)
    }

    /// Acts if nobody has taken the transaction since that turn; nobody takes it meanwhile.
    pub(crate) fn unless_taken_since<T>(
        &self,
        id: TransactionId,
        turn: u64,
        act: impl FnOnce() -> T,
    ) -> Option<T> {
        let mut state = self.lock();
        let is_free = state
            .taken
            .get(&id)
            .map_or(turn == 0, |one| one.by.is_none() && one.turn == turn);
        if !is_free {
            return None;
        }
        let done = act();
        state.taken.remove(&id);
        Some(done)
    }
}
