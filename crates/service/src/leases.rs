//! Waiting for leases in a commit.
//!
//! Anyone may take a lease (fcntl(2), F_SETLEASE) on a file of their own. Then every
//! open of the file waits until the holder gives the lease back, or the kernel ends
//! it after `/proc/sys/fs/lease-break-time`. Before a commit is in the log, the
//! engine never waits for a lease; it reports the file instead. The connection that
//! asked for the commit waits here, with no lock held, and tries again.

use crate::replies::Unanswered;
use crate::service::Service;
use crate::socket::Stream;
use crate::transactions::Transaction;
use crate::views::Arrived;
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use std::time::{Duration, Instant};

/// The kernel reports the end of a lease only to threads that wait in an open, and
/// such a wait cannot be interrupted when the peer disconnects. So we try at
/// intervals.
const PAUSE: Duration = Duration::from_millis(20);
/// Longer than the kernel's default limit for breaking a lease.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) enum Attempt<T> {
    Done(T),
    /// The step that failed and its file, if known.
    Leased(Option<(&'static str, String)>),
}

/// Tries until no lease is in the way, the peer has disconnected, or the time is over.
pub(crate) fn outlast<T>(
    stream: &Stream,
    mut attempt: impl FnMut() -> Result<Attempt<T>, Unanswered>,
) -> Result<Attempt<T>, Unanswered> {
    let end = Instant::now() + TIME_MAX;
    loop {
        let tried = attempt()?;
        let is_leased = matches!(tried, Attempt::Leased(_));
        if !is_leased || Instant::now() >= end || stream.is_hung_up_within(PAUSE) {
            return Ok(tried);
        }
    }
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
