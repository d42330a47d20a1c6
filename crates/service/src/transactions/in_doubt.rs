//! Transactions that have voted for a commit which a transaction of another store decides. The client that
//! commits them together tells the decision. If it has gone, or this service has come after it, the
//! service asks the store that decides, at growing intervals.
//!
//! Each question has its own thread, since it may start the other store's service.

use crate::service::Service;
use crate::transactions::notices::How;
use crate::transactions::{OpenTransaction, Transaction};
use atomdir::client::Connection;
use atomdir::{StartService, StoreLocation, Trust};
use atomdir_disk::sync;
use atomdir_engine::{Outcome, Partner, Portion};
use atomdir_protocol::{InDoubt, TransactionId};
use rustix::process::geteuid;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The client mostly tells the decision before this.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When the service asks next for each transaction.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<TransactionId, Question>>);

struct Question {
    due: Instant,
    pause: Duration,
    is_asked: bool,
    /// Why it is still in doubt, as the last answer was.
    reason: Option<String>,
}

impl Question {
    fn after(pause: Duration, reason: Option<String>) -> Question {
        Question {
            due: Instant::now() + pause,
            pause,
            is_asked: false,
            reason,
        }
    }
}

/// What users learn of a transaction that is in doubt.
pub(crate) fn status(service: &Service, transaction: &Transaction) -> Option<InDoubt> {
    let coordinator = transaction.coordinator()?;
    let questions = sync::lock(&service.questions.0);
    let question = questions.get(&transaction.id());
    Some(InDoubt {
        coordinator,
        reason: question.and_then(|question| question.reason.clone()),
    })
}

/// To be called every now and then. Returns whether any transaction is in doubt.
pub(crate) fn tend(service: &Arc<Service>) -> bool {
    let mut questions = sync::lock(&service.questions.0);
    let doubtful = service.transactions.in_doubt();
    questions.retain(|id, _| doubtful.iter().any(|one| one.id() == *id));
    for one in &doubtful {
        let question = questions.entry(one.id());
        let question = question.or_insert_with(|| Question::after(PAUSE_FIRST, None));
        if question.is_asked || question.due > Instant::now() {
            continue;
        }
        question.is_asked = true;
        let (for_thread, one) = (service.clone(), one.clone());
        let thread = std::thread::Builder::new().name("in doubt".to_owned());
        let asking = thread.spawn(move || ask_and_end(&for_thread, &one));
        if let Err(error) = asking {
            tracing::warn!(%error, "nobody asks for the decision yet");
            question.is_asked = false;
        }
    }
    !doubtful.is_empty()
}

fn ask_and_end(service: &Service, one: &OpenTransaction) {
    let id = one.id();
    let Some(coordinator) = one.transaction.coordinator() else {
        sync::lock(&service.questions.0).remove(&id);
        return;
    };
    let turn = service.committers.turn(id);
    let is_own = one.transaction.owner() == geteuid().as_raw();
    let asked = ask(&coordinator).map_err(|reason| {
        tracing::info!("transaction {id} stays in doubt: {reason}");
        match is_own {
            true => reason,
            // It would tell another user what this service finds at a path of their choice.
            false => "its store cannot be asked".to_owned(),
        }
    });
    let reason = match asked {
        Ok(Outcome::Open) => "it has not ended yet".to_owned(),
        Ok(Outcome::Idle) => {
            let withdraw = || service.store.withdraw_vote(&one.transaction);
            if let Some(Ok(())) = service.committers.unless_taken_since(id, turn, withdraw) {
                tracing::info!("transaction {id} is open again: nobody commits its coordinator");
            }
            "nobody commits it at the moment".to_owned()
        }
        Ok(Outcome::Aborted) => {
            tracing::info!("transaction {id} is aborted: its coordinator has not committed");
            abort(service, one);
            "it has ended without a commit".to_owned()
        }
        Ok(Outcome::Committed) => {
            let committed =
                service
                    .store
                    .commit_decided(&one.transaction, Portion::All, &mut |_| {});
            match committed {
                Ok(_) => {
                    tracing::info!("transaction {id} is committed, as its coordinator is");
                    service.forget(one);
                    "it has committed".to_owned()
                }
                Err(error) => format!("it has committed, and this one cannot yet: {error}"),
            }
        }
        Err(reason) => reason,
    };
    let mut questions = sync::lock(&service.questions.0);
    if let Some(question) = questions.get_mut(&id) {
        let pause = (2 * question.pause).min(PAUSE_MAX);
        *question = Question::after(pause, Some(reason));
    }
}

fn ask(coordinator: &Partner) -> Result<Outcome, String> {
    let root = Path::new(OsStr::from_bytes(&coordinator.root));
    let store = StoreLocation::at_with(root, Trust::Listed).map_err(|error| error.to_string())?;
    let start = StartService::with_program("/proc/self/exe", &store);
    let mut connection = Connection::open(&store, &start).map_err(|error| error.to_string())?;
    let outcome = connection.outcome(coordinator.store, coordinator.transaction);
    outcome.map_err(|error| error.to_string())
}

/// The coordinator has ended without a commit, and so does this one.
fn abort(service: &Service, one: &OpenTransaction) {
    if let Err(error) = service.store.withdraw_vote(&one.transaction) {
        return tracing::debug!(%error, "transaction {} has ended meanwhile", one.id());
    }
    let removed = service.transactions.remove(one.id());
    let by = one.transaction.owner();
    service.abort_by_force(removed, How::Aborted { by });
}
