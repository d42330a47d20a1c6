//! Trying a transaction again after a conflict.

use super::error::Error;
use super::shared::SharedTransaction;
use super::store::{Store, TransactionOptions};
use super::transaction::Transaction;
use atomdir_protocol::TransactionId;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

pub(super) const TRIES_MAX: u32 = 100;
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The pause doubles this many times at most.
const DOUBLINGS_MAX: u32 = 6;

impl Store {
    /// Runs `body` in a transaction and commits it. If others were in the way, aborts it and
    /// runs `body` again in a new one, after a pause that grows with each try.
    ///
    /// If `body` fails with any other error, the transaction is aborted and the error returned.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("counter", b"41")?;
    /// # tx.commit()?;
    /// let next = store.run(|tx| {
    ///     let counter = tx.read_to_string("counter")?;
    ///     let next = counter.parse::<u64>().map_err(atomdir::Error::other)? + 1;
    ///     tx.write("counter", next.to_string())?;
    ///     Ok(next)
    /// })?;
    /// assert_eq!(next, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.transaction().run(body)
    }
}

impl TransactionOptions<'_> {
    /// Like [`Store::run`], with these options.
    pub fn run<T>(
        &self,
        mut body: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_again(|mut transaction| {
            let done = body(&mut transaction)?;
            transaction.commit()?;
            Ok(done)
        })
    }

    /// Like [`run`](Self::run), with a transaction that the body may share.
    pub fn run_shared<T>(
        &self,
        mut body: impl FnMut(&SharedTransaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_again(|transaction| {
            let transaction = SharedTransaction::from(transaction);
            let done = body(&transaction).and_then(|done| {
                transaction.commit()?;
                Ok(done)
            });
            // Others may keep it.
            transaction.abort();
            done
        })
    }

    fn try_again<T>(
        &self,
        mut attempt: impl FnMut(Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut options = self.clone();
        let mut tries = 0;
        loop {
            tries += 1;
            let transaction = options.begin()?;
            // With early conflicts the oldest first try wins.
            let first: TransactionId = transaction.id();
            options.begin.first_try.get_or_insert(first);
            let error = match attempt(transaction) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !error.is_conflict() || tries >= self.tries_max {
                return Err(error);
            }
            std::thread::sleep(pause(tries));
        }
    }
}

/// A random pause. The first is none: who was in the way has usually committed.
fn pause(tries: u32) -> Duration {
    if tries == 1 {
        return Duration::ZERO;
    }
    let longest = PAUSE_MIN * (1 << (tries - 2).min(DOUBLINGS_MAX));
    let random = RandomState::new().build_hasher().finish();
    longest.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert_eq!(pause(1), Duration::ZERO);
        for tries in 2..200 {
            assert!(pause(tries) <= PAUSE_MIN * 64, "{tries}");
        }
    }
}
