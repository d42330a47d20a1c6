//! Ends transactions and locks at the age that their owner has set.
//!
//! One thread waits for the next that is due. It ends nothing itself, since an end
//! may wait for a commit of the same transaction. It starts a thread for each end.

use crate::clients::replies::Unanswered;
use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::transactions::Transaction;
use crate::transactions::notices::How;
use crate::transactions::survival;
use atomdir_disk::sync;
use atomdir_protocol::{Answer, Failure, FailureKind, TransactionId};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// The limit for one transaction.
const ENDINGS_MAX: usize = 64;
/// When a transaction in doubt is looked at again that has reached its age.
const IN_DOUBT_PAUSE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Expiry {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number distinguishes entries that are due at the same time.
    due: BTreeMap<(Instant, u64), Due>,
    count: u64,
    /// When transactions would have ended that have ended before. A lazy commit among them may be
    /// set aside, which opens its transaction again.
    former: BTreeMap<TransactionId, Former>,
    is_over: bool,
}

struct Former {
    /// Dropped for good when the transaction is.
    transaction: Weak<Transaction>,
    at: Instant,
    age: Duration,
}

pub(crate) struct Due {
    pub(crate) transaction: TransactionId,
    pub(crate) age: Duration,
    pub(crate) ending: Ending,
}

impl Due {
    pub(crate) fn transaction(transaction: TransactionId, age: Duration) -> Due {
        Due {
            transaction,
            age,
            ending: Ending::Transaction,
        }
    }
}

/// The transaction or locks that end when the age is reached.
pub(crate) enum Ending {
    /// Abort the transaction.
    Transaction,
    /// Release its locks on these paths, written as in the request.
    Locks(Vec<Vec<u8>>),
}

pub(crate) fn abort_after(
    service: &Service,
    peer: &Peer,
    transaction: TransactionId,
    age: Duration,
) -> Result<Answer, Unanswered> {
    let one = service.transactions.find(transaction, peer)?;
    service.expiry.check_room(transaction)?;
    service.expiry.add(Due::transaction(transaction, age));
    if one.transaction.survives() {
        // The next service ends it, too.
        survival::survive(service, &one);
    }
    Ok(Answer::Nothing)
}

impl Expiry {
    /// Several connections may check at once and all succeed, which exceeds the limit
    /// a little.
    pub(crate) fn check_room(&self, transaction: TransactionId) -> Result<(), Failure> {
        let state = sync::lock(&self.state);
        let is_of_it = |due: &&Due| due.transaction == transaction;
        if state.due.values().filter(is_of_it).count() < ENDINGS_MAX {
            return Ok(());
        }
        let message = format!(
            "transaction {transaction} and its locks already have {ENDINGS_MAX} maximum ages; no more can be set"
        );
        Err(Failure::new(FailureKind::TooMany, message))
    }

    pub(crate) fn add(&self, due: Due) {
        let age = due.age;
        self.add_after(due, age);
    }

    /// For a transaction that has reached a part of its age already.
    pub(crate) fn add_after(&self, due: Due, left: Duration) {
        // An age beyond what the clock can show never ends.
        let Some(at) = Instant::now().checked_add(left) else {
            return;
        };
        self.add_at(&mut sync::lock(&self.state), due, at);
    }

    fn add_at(&self, state: &mut State, due: Due, at: Instant) {
        state.count += 1;
        let number = state.count;
        state.due.insert((at, number), due);
        self.changed.notify_all();
    }

    /// The age at which a transaction ends first, and the time until then.
    pub(crate) fn end_of(&self, transaction: TransactionId) -> Option<(Duration, Duration)> {
        let state = sync::lock(&self.state);
        let mut due = state.due.iter();
        let ((at, _), due) = due.find(|(_, due)| {
            due.transaction == transaction && matches!(due.ending, Ending::Transaction)
        })?;
        Some((due.age, at.saturating_duration_since(Instant::now())))
    }

    /// Forgets a transaction that has ended, until [`resume`](Self::resume).
    pub(crate) fn forget(&self, transaction: &Arc<Transaction>) {
        let id = transaction.id();
        let mut state = sync::lock(&self.state);
        if state.due.is_empty() {
            return;
        }
        let of_it = |(_, due): &(_, &Due)| due.transaction == id;
        let mut ends = state.due.iter().filter(of_it);
        let end = ends.find(|(_, due)| matches!(due.ending, Ending::Transaction));
        let former = end.map(|((at, _), due)| Former {
            transaction: Arc::downgrade(transaction),
            at: *at,
            age: due.age,
        });
        state.due.retain(|_, due| due.transaction != id);
        if let Some(former) = former {
            let former_ones = &mut state.former;
            former_ones.retain(|_, one| one.transaction.strong_count() > 0);
            former_ones.insert(id, former);
        }
    }

    /// The transaction is open again, and ends when it would have ended before.
    pub(crate) fn resume(&self, transaction: &Transaction) {
        let id = transaction.id();
        let mut state = sync::lock(&self.state);
        if let Some(Former { at, age, .. }) = state.former.remove(&id) {
            self.add_at(&mut state, Due::transaction(id, age), at);
        }
    }

    /// Waits for the next that is due. Returns `None` at the end of the service.
    fn next(&self) -> Option<Due> {
        let mut state = sync::lock(&self.state);
        while !state.is_over {
            let Some(first) = state.due.first_entry() else {
                state = sync::wait(&self.changed, state);
                continue;
            };
            let left = first.key().0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(first.remove());
            }
            state = sync::wait_for(&self.changed, state, left).0;
        }
        None
    }

    pub(crate) fn end(&self) {
        sync::lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

/// The work of the thread, until [`Expiry`] ends.
pub(crate) fn run(service: &Arc<Service>) {
    while let Some(due) = service.expiry.next() {
        let ending = Arc::downgrade(service);
        let thread = std::thread::Builder::new().name("expiry".to_owned());
        let end = move || {
            if let Some(service) = ending.upgrade() {
                end(&service, due);
            }
        };
        if let Err(error) = thread.spawn(end) {
            tracing::error!("cannot end what has reached its age: {error}");
        }
    }
}

fn end(service: &Service, due: Due) {
    let transactions = &service.transactions;
    match due.ending {
        Ending::Transaction => {
            let age_ms = u64::try_from(due.age.as_millis()).unwrap_or(u64::MAX);
            let removed = transactions.remove(due.transaction);
            service.abort_by_force(removed, How::Age { age_ms });
            let open = transactions.get(due.transaction);
            if open.is_some_and(|one| one.transaction.is_in_doubt()) {
                // If its vote does not count in the end, its age does.
                service.expiry.add_after(due, IN_DOUBT_PAUSE);
            }
        }
        Ending::Locks(paths) => {
            if let Some(one) = transactions.get(due.transaction) {
                service.store.unlock(&one.transaction, Some(&paths));
            }
        }
    }
}
