//! Transactions of several stores that are committed together.

use super::error::{BeginError, CommitError, StoreError};
use super::receipt::Receipt;
use super::store::Store;
use super::transaction::Transaction;
use crate::joint;
use crate::served::{ServedTransaction, commit_together, link};
use atomdir_types::TransactionId;
use std::ops::Deref;

/// Transactions of several stores that commit together: all of them, or none, whatever dies in between.
/// See [`Store::begin_with`]. Dropping it aborts all of them.
///
/// It is a slice of the transactions, in the order of the stores, to work in. None of them commits by
/// itself: [`Transaction::commit_part`] is refused, and what [`keep`](Together::keep) leaves open is
/// committed by `atomdir commit`, together.
#[derive(Debug)]
pub struct Together {
    transactions: Vec<Transaction>,
}

impl Deref for Together {
    type Target = [Transaction];

    fn deref(&self) -> &[Transaction] {
        &self.transactions
    }
}

/// Transactions of several stores of which none was committed. Nothing of them is lost: they are still
/// open, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
#[error("in store {place}: {error}")]
pub struct UncommittedTogether {
    /// The transactions.
    pub transactions: Together,
    /// The place of the one that could not be committed.
    pub place: usize,
    /// Why it could not.
    pub error: CommitError,
}

impl Store {
    /// Begins a transaction in this store and in each of the others. They are committed together, also on
    /// different file systems. All stores must have services ([`Door::Service`](crate::Door::Service)) and
    /// the same owner, and none may be inside another.
    ///
    /// ```no_run
    /// use atomdir::{Door, StoreOptions};
    ///
    /// let open = |path| StoreOptions::new().door(Door::Service).open(path);
    /// let (site, db) = (open("/srv/site")?, open("/srv/db")?);
    /// let both = site.begin_with(&[&db])?;
    /// both[0].write("version", b"2\n")?;
    /// both[1].write("schema", b"2\n")?;
    /// both.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin_with(&self, others: &[&Store]) -> Result<Together, BeginError> {
        let stores: Vec<&Store> = std::iter::once(self)
            .chain(others.iter().copied())
            .collect();
        for (place, one) in stores.iter().enumerate() {
            // Only they know others' transactions.
            one.served()?;
            let place_of = |store: &Store| {
                let location = store.location();
                (location.root.clone(), location.control.clone())
            };
            for before in &stores[..place] {
                if let Some(why) = joint::why_not_together(&place_of(before), &place_of(one)) {
                    return Err(BeginError::Store(StoreError::Other(why)));
                }
            }
        }
        let begun = stores.iter().map(|store| store.begin());
        let transactions = begun.collect::<Result<Vec<Transaction>, _>>()?;
        let together = Together { transactions };
        link(&together.sessions().map_err(StoreError::from)?)?;
        Ok(together)
    }
}

impl Together {
    fn sessions(&self) -> Result<Vec<&ServedTransaction>, StoreError> {
        let sessions = self.transactions.iter();
        let sessions = sessions.map(|one| one.session.as_served());
        sessions
            .collect::<Option<Vec<_>>>()
            .ok_or(StoreError::NeedsService)
    }

    /// Commits all of them, or none. When this returns, all have their commit, with one exception: a program
    /// outside may have changed the same in one store just now. Then its receipt is
    /// [stalled](Receipt::stalled), and its service tries again. If this fails, all are aborted; see
    /// [`try_commit`](Together::try_commit).
    pub fn commit(self) -> Result<Vec<Receipt>, CommitError> {
        self.try_commit().map_err(|failed| failed.error)
    }

    /// Like [`commit`](Together::commit), but gives the transactions back if none was committed.
    pub fn try_commit(self) -> Result<Vec<Receipt>, Box<UncommittedTogether>> {
        let committed = self
            .sessions()
            .map_err(|error| (0, CommitError::Store(error)));
        match committed.and_then(|sessions| commit_together(&sessions)) {
            Ok(done) => {
                let done = self.transactions.iter().zip(done);
                Ok(done.map(|(one, done)| one.committed(done)).collect())
            }
            Err((place, error)) => Err(Box::new(UncommittedTogether {
                transactions: self,
                place,
                error,
            })),
        }
    }

    /// Aborts all of them.
    pub fn abort(self) {}

    /// Leaves all of them open, and makes what was written in them durable. `atomdir commit` with any of
    /// them commits all.
    pub fn keep(self) -> Result<Vec<TransactionId>, StoreError> {
        self.transactions
            .into_iter()
            .map(Transaction::keep)
            .collect()
    }
}
