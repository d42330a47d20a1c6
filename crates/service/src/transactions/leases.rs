//! Waiting for leases in a commit ([`outlast_leases`]). The connection that asked for the commit
//! waits, and no longer once its peer has disconnected.

use crate::clients::replies::Unanswered;
use crate::clients::socket::Stream;
use crate::service::Service;
use crate::transactions::Transaction;
use atomdir::hosting::outlast_leases;
use atomdir_protocol::{Failure, FailureKind, TransactionId};

/// Whether the view has received everything that the transaction's programs wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    All,
    /// Somebody else ended the mount after the transaction began.
    PerhapsNotAll,
    /// A write waits for a file on which another process holds a lease.
    NotAllYet,
}

pub(crate) enum Attempt<T> {
    Done(T),
    /// The step that failed and its file, if known.
    Leased(Option<(&'static str, String)>),
}

/// Tries until no lease is in the way, the peer has disconnected, or the time is over.
pub(crate) fn outlast<T>(
    stream: &Stream,
    attempt: impl FnMut() -> Result<Attempt<T>, Unanswered>,
) -> Result<Attempt<T>, Unanswered> {
    let is_leased = |tried: &Result<_, _>| matches!(tried, Ok(Attempt::Leased(_)));
    outlast_leases(attempt, is_leased, |time| !stream.is_hung_up_within(time))
}

/// Gathers all that the transaction's programs have written; returns whether all arrived.
pub(crate) fn gather(
    service: &Service,
    stream: &Stream,
    transaction: &Transaction,
) -> Result<Arrived, Unanswered> {
    let gathered = outlast(stream, || {
        Ok(match service.views.write_back(transaction)? {
            Arrived::NotAllYet => Attempt::Leased(None),
            arrived => Attempt::Done(arrived),
        })
    });
    match gathered? {
        Attempt::Done(arrived) => Ok(arrived),
        Attempt::Leased(file) => {
            let id = transaction.id();
            Err(failure(id, file).into())
        }
    }
}

pub(crate) fn failure(id: TransactionId, file: Option<(&'static str, String)>) -> Failure {
    let action = match file {
        Some((step, path)) => format!("cannot {step} '{path}'"),
        None => "cannot gather what was written to mapped memory".to_owned(),
    };
    let message = format!(
        "{action}: another program holds a lease on the file and has not given it back; \
         transaction {id} is still open"
    );
    Failure::new(FailureKind::Leased, message)
        .with_hint("`fuser` or `grep . /proc/locks` shows who holds it; then commit again")
}
