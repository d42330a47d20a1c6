//! Commits of transactions that are nested in one with a native view.
//!
//! Only the process that mounted the overlay can change it, so the service announces the
//! commit to that process's connection and waits.
//!
//! Invariants
//! 1. Only that connection gets the steps of a commit and reports its result.
//! 2. Before the commit is announced, the nested transaction is taken off the list of open ones.
//!    So from then on nobody can abort it, and the end of its own client changes nothing.
//! 3. An announced commit fails only if the process refuses it before it has changed anything, or
//!    if the outer transaction ends. Then all that either has changed is dropped. The outer one
//!    also ends with the process.
//! 4. One commit at a time is carried out in a native view (`merge_turns`).

use crate::clients::connection::Connection;
use crate::clients::connections::ConnectionId;
use crate::clients::latch::Latch;
use crate::clients::replies::{Outcome, Unanswered, send_parts};
use crate::rights::permissions;
use crate::service::Service;
use crate::transactions::leases::{self, Arrived};
use crate::transactions::{OpenTransaction, Transaction};
use crate::views::lending;
use crate::views::merge_turns::{BeginTurn, MergeTurns};
use crate::views::native;
use atomdir_disk::reason;
use atomdir_disk::sync;
use atomdir_engine::{CommitError, Committed};
use atomdir_protocol::{Answer, Failure, FailureKind, MergeStep, Reply, Request, TransactionId};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct Merges {
    /// The commits on their way, by nested transaction.
    under_way: Mutex<BTreeMap<TransactionId, Merge>>,
    turns: MergeTurns,
}

struct Merge {
    /// The connection of the process that mounted the overlay.
    mounter: ConnectionId,
    transaction: Arc<Transaction>,
    steps: Vec<MergeStep>,
    /// Set at the end: why it was refused, if it was.
    result: Option<Result<(), String>>,
    /// Set when the result is known, or the outer transaction has ended.
    latch: Arc<Latch>,
}

/// Why a commit into a native view has failed.
pub(crate) enum NotMerged {
    /// Perhaps not all that its programs wrote has arrived.
    PerhapsIncomplete,
    Refused(CommitError),
    Unanswered(Unanswered),
}

impl<T: Into<Unanswered>> From<T> for NotMerged {
    fn from(unanswered: T) -> NotMerged {
        NotMerged::Unanswered(unanswered.into())
    }
}

impl Merges {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TransactionId, Merge>> {
        sync::lock(&self.under_way)
    }

    /// Waits until the native view may be read for a transaction to be nested in it.
    pub(crate) fn begin_in(&self, outer: TransactionId) -> BeginTurn<'_> {
        self.turns.begin(outer)
    }

    /// Called when a connection has closed.
    pub(crate) fn mounter_has_gone(&self, connection: ConnectionId) {
        let merges = self.lock();
        let waiting = merges.values().filter(|one| one.mounter == connection);
        waiting.for_each(|one| one.latch.set());
    }

    /// Called when the outer transaction has ended.
    pub(crate) fn outer_has_ended(&self, outer: &Transaction) {
        let merges = self.lock();
        let is_nested = |one: &&Merge| {
            let nested_in = one.transaction.outer();
            nested_in.is_some_and(|found| found.id() == outer.id())
        };
        merges
            .values()
            .filter(is_nested)
            .for_each(|one| one.latch.set());
    }
}

/// Commits `one` into the native view of its outer transaction.
pub(crate) fn merge(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    outer: &OpenTransaction,
) -> Result<Committed, NotMerged> {
    let id = one.id();
    let mounter = outer
        .mounter
        .ok_or_else(|| native::in_use(outer.id(), ""))?;
    if leases::gather(service, &connection.stream, &one.transaction)? == Arrived::PerhapsNotAll {
        return Err(NotMerged::PerhapsIncomplete);
    }
    let _turn = service.merges.turns.merge(outer.id());
    let was_frozen = one.transaction.is_frozen();
    let planned = service.store.plan_merge(&one.transaction);
    let steps = planned.map_err(NotMerged::Refused)?;
    let result = match steps.is_empty() {
        true => Ok(()),
        false => carry_out(service, one, outer, mounter, steps),
    };
    if let Err(failure) = result {
        if !was_frozen {
            one.transaction.thaw();
        }
        if !service.transactions.add(one) {
            service.abort(vec![one.clone()]);
        }
        return Err(failure.into());
    }
    let finished = service.store.finish_merge(&one.transaction);
    service.forget(one);
    finished.map_err(|_| permissions::no_such_transaction(id).into())
}

/// Has the process that mounted the overlay carry out the steps.
fn carry_out(
    service: &Service,
    one: &OpenTransaction,
    outer: &OpenTransaction,
    mounter: ConnectionId,
    steps: Vec<MergeStep>,
) -> Result<(), Failure> {
    let id = one.id();
    let ended = || permissions::no_such_transaction(outer.id());
    let latch = Latch::new().map_err(|errno| {
        let why = reason(errno);
        let message = format!("cannot wait for the commit of transaction {id}: {why}");
        Failure::new(FailureKind::Io, message)
    })?;
    let latch = Arc::new(latch);
    let (_, stream) = service.connections.peer(mounter).ok_or_else(ended)?;
    let merge = Merge {
        mounter,
        transaction: one.transaction.clone(),
        steps,
        result: None,
        latch: latch.clone(),
    };
    let other = service.merges.lock().insert(id, merge);
    assert!(
        other.is_none(),
        "a transaction is committed twice at a time"
    );
    if service.transactions.remove(id).is_empty() {
        // Somebody has aborted it since the steps were planned.
        service.merges.lock().remove(&id);
        return Err(permissions::no_such_transaction(id));
    }
    let refused_before = outer.transaction.count_refused();
    let announced = stream.send_reply(&Reply::Merge(id));
    let result = loop {
        let result = service
            .merges
            .lock()
            .get(&id)
            .and_then(|one| one.result.clone());
        if let Some(result) = result {
            if let (Err(_), Ok(before)) = (&result, refused_before) {
                // If the outer transaction has ended, this fails.
                let _ = outer.transaction.forget_refused(before);
            }
            break result.map_err(|why| refused(id, outer.id(), &why));
        }
        let is_open = service.transactions.get(outer.id()).is_some();
        if announced.is_err() || !is_open || !service.connections.has_peer(mounter) {
            break Err(ended());
        }
        let mut polled = [PollFd::new(&latch, PollFlags::IN)];
        let _ = poll(&mut polled, None);
        latch.clear();
    };
    service.merges.lock().remove(&id);
    result
}

fn refused(id: TransactionId, outer: TransactionId, why: &str) -> Failure {
    let message = format!(
        "overlayfs refuses the changes of transaction {id} in the native view of transaction \
         {outer}: {why}; nothing was changed: run the outermost command with `--view exact`"
    );
    Failure::new(FailureKind::NoViews, message)
}

/// The requests of the process that mounted the overlay.
pub(crate) fn handle(
    service: &Service,
    connection: &Connection,
    request: Request,
) -> Result<Outcome, Unanswered> {
    match request {
        Request::CloseView { transaction, force } => {
            let answer = lending::close(service, connection, transaction, force)?;
            Ok(Outcome::Last(Reply::Done(answer)))
        }
        Request::MergeSteps { transaction } => steps(service, connection, transaction),
        Request::Merged {
            transaction,
            refused,
        } => merged(service, connection, transaction, refused),
        _ => {
            let message = "the request is not about a commit into a native view";
            Err(Failure::new(FailureKind::BadRequest, message).into())
        }
    }
}

/// Sends the steps, and the root of the nested view, to the process that mounted the overlay.
fn steps(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Outcome, Unanswered> {
    let (transaction, steps) = with_mounters_own(service, connection, id, |merge| {
        (merge.transaction.clone(), std::mem::take(&mut merge.steps))
    })?;
    let root = service.views.open(&transaction)?;
    send_parts(&connection.stream, steps, length, Reply::MergeSteps)?;
    Ok(Outcome::LastWith(Reply::Done(Answer::Nothing), root))
}

fn length(step: &MergeStep) -> usize {
    16 + match step {
        MergeStep::Link { path, to } => path.len() + to.len(),
        MergeStep::Remove { path, .. }
        | MergeStep::Park { path, .. }
        | MergeStep::Place { path, .. }
        | MergeStep::Create { path }
        | MergeStep::Dress { path, .. } => path.len(),
    }
}

/// The process that mounted the overlay has carried out the steps, or refuses to.
fn merged(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    refused: Option<String>,
) -> Result<Outcome, Unanswered> {
    with_mounters_own(service, connection, id, |merge| {
        merge.result = Some(refused.map_or(Ok(()), Err));
        merge.latch.set();
    })?;
    Ok(Outcome::Last(Reply::Done(Answer::Nothing)))
}

/// Fails unless the connection mounted the overlay into which this transaction is committed.
fn with_mounters_own<T>(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    act: impl FnOnce(&mut Merge) -> T,
) -> Result<T, Failure> {
    let mut merges = service.merges.lock();
    let merge = merges
        .get_mut(&id)
        .filter(|one| one.mounter == connection.id);
    merge
        .map(act)
        .ok_or_else(|| permissions::no_such_transaction(id))
}
