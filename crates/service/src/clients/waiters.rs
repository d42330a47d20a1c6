//! Requests that wait while others use a transaction.
//!
//! A waiting request polls its peer's socket together with a latch. It makes the latch known, tries
//! once more, and only then waits. A thread that ends a use of the transaction first changes the
//! state that the request checks, and sets the latches after that. So the request misses no end. It
//! also ends when its peer disconnects or the service closes the connection.

use crate::clients::latch::Latch;
use crate::clients::replies::{Unanswered, send_one};
use crate::clients::socket::Stream;
use atomdir_disk::reason;
use atomdir_disk::sync;
use atomdir_protocol::{Failure, FailureKind, Progress, Reply, TransactionId};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<(TransactionId, Arc<Latch>)>>);

/// Makes a latch known until it is dropped.
struct Watch<'a> {
    waiters: &'a Waiters,
    latch: Arc<Latch>,
}

impl Waiters {
    /// Makes all that wait for this transaction try again.
    pub(crate) fn wake(&self, id: TransactionId) {
        for (_, latch) in self.lock().iter().filter(|(of, _)| *of == id) {
            latch.set();
        }
    }

    /// Tries until the result is another than [`FailureKind::InUse`].
    pub(crate) fn outlast<T>(
        &self,
        stream: &Stream,
        id: TransactionId,
        mut attempt: impl FnMut() -> Result<T, Unanswered>,
    ) -> Result<T, Unanswered> {
        let mut watch: Option<Watch<'_>> = None;
        let mut is_reported = false;
        loop {
            if let Some(watch) = &watch {
                watch.latch.clear();
            }
            let failure = match attempt() {
                Err(Unanswered::Failed(failure)) if failure.kind == FailureKind::InUse => failure,
                other => return other,
            };
            let Some(watch) = &watch else {
                watch = Some(self.watch(id)?);
                continue;
            };
            if !is_reported {
                let waiting = Progress::Waiting(failure.message);
                send_one(stream, &Reply::Progress(waiting))?;
                is_reported = true;
            }
            if !stream.wait_beside(&watch.latch, None) {
                return Err(Unanswered::PeerLost(Errno::CONNRESET));
            }
        }
    }

    fn watch(&self, id: TransactionId) -> Result<Watch<'_>, Failure> {
        let latch = Latch::new().map_err(|errno| {
            let message = format!(
                "cannot wait for transaction {id}: {errno}",
                errno = reason(errno)
            );
            Failure::new(FailureKind::Io, message)
        })?;
        let latch = Arc::new(latch);
        self.lock().push((id, latch.clone()));
        Ok(Watch {
            waiters: self,
            latch,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(TransactionId, Arc<Latch>)>> {
        sync::lock(&self.0)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|(_, latch)| !Arc::ptr_eq(latch, &self.latch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TransactionId = TransactionId(7);

    fn in_use() -> Unanswered {
        Failure::new(FailureKind::InUse, "in use").into()
    }

    #[test]
    fn an_end_between_a_try_and_the_wait_is_not_missed() {
        let (stream, _peer) = Stream::pair();
        let waiters = Waiters::default();
        let mut tries = 0;
        let result = waiters.outlast(&stream, ID, || {
            tries += 1;
            // The first try comes before the latch is known, so another one follows it.
            waiters.wake(ID);
            match tries {
                1..5 => Err(in_use()),
                _ => Ok(()),
            }
        });
        assert!(result.is_ok());
        assert!(waiters.lock().is_empty());
    }

    #[test]
    fn a_wait_ends_with_its_peer_and_with_another_failure() {
        let (stream, peer) = Stream::pair();
        let waiters = Waiters::default();
        let mut peer = Some(peer);
        let result: Result<(), _> = waiters.outlast(&stream, ID, || {
            if !waiters.lock().is_empty() {
                drop(peer.take());
            }
            Err(in_use())
        });
        assert!(matches!(result, Err(Unanswered::PeerLost(_))), "{result:?}");
        assert!(waiters.lock().is_empty());
        let ended: Result<(), _> = waiters.outlast(&stream, ID, || {
            Err(Failure::new(FailureKind::NoSuchTransaction, "ended").into())
        });
        assert!(matches!(ended, Err(Unanswered::Failed(_))), "{ended:?}");
    }
}
