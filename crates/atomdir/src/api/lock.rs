//! Locks, savepoints and nested transactions.

use super::error::{BeginError, CommitError, LockError, SavepointError};
use super::receipt::{Receipt, WhenDurable};
use super::session::LockWanted;
use super::transaction::Transaction;
use atomdir_protocol::{LockMode, LockScope};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

impl Transaction {
    /// Locks the object at a path until the transaction ends, and waits as long as others hold
    /// locks on it. While it is locked, nobody else can commit a change of it.
    pub fn lock(&self, path: impl AsRef<Path>, mode: LockMode) -> Result<(), LockError> {
        self.lock_all(&[path.as_ref()], mode, LockScope::Object, None)
    }

    /// Locks all of these paths or none, and waits no longer than `wait`.
    pub fn lock_all(
        &self,
        paths: &[&Path],
        mode: LockMode,
        scope: LockScope,
        wait: Option<Duration>,
    ) -> Result<(), LockError> {
        self.session.lock(&LockWanted {
            paths,
            mode,
            scope,
            wait,
        })
    }

    /// Names the present state, for [`roll_back`](Transaction::roll_back), and drops an older
    /// savepoint of that name.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let mut tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// tx.set_savepoint("first")?;
    /// tx.write("b", b"2")?;
    /// tx.roll_back("first")?;
    /// assert!(tx.exists("a")? && !tx.exists("b")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_savepoint(&self, name: impl AsRef<[u8]>) -> Result<(), SavepointError> {
        self.session.set_savepoint(name.as_ref())
    }

    /// Restores the state at the savepoint. The savepoint stays; later ones are dropped. No file
    /// may be open.
    pub fn roll_back(&mut self, savepoint: impl AsRef<[u8]>) -> Result<(), SavepointError> {
        self.session.roll_back(savepoint.as_ref())
    }

    /// Begins a transaction within this one. It sees what this one sees, its commit makes its
    /// changes part of this one, and dropping it drops them. Meanwhile this one cannot be used.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let mut tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// let inner = tx.nest()?;
    /// inner.write("b", b"2")?;
    /// inner.commit()?;
    /// let inner = tx.nest()?;
    /// inner.remove_file("a")?;
    /// inner.abort();
    /// assert!(tx.exists("a")? && tx.exists("b")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn nest(&mut self) -> Result<Nested<'_>, BeginError> {
        let transaction = Transaction::new(self.session.nest()?, WhenDurable::WithTheOuter);
        Ok(Nested {
            transaction,
            outer: PhantomData,
        })
    }

    /// Begins a second transaction from the present state of this one: it has the same snapshot, the
    /// same changes, isolation and durability. From then on the two are independent. Where both have
    /// changed the same in different ways, the first to commit wins. A transaction with
    /// [early conflicts](crate::Conflicts::Early) cannot be forked.
    ///
    /// If a file is open here, the fork has what was written to it before the fork.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let one_way = store.begin()?;
    /// one_way.write("common", b"1")?;
    /// let other_way = one_way.fork()?;
    /// one_way.write("result", b"bad")?;
    /// other_way.write("result", b"good")?;
    /// one_way.abort();
    /// other_way.commit()?;
    /// # assert_eq!(std::fs::read(scratch.path().join("common"))?, b"1");
    /// # assert_eq!(std::fs::read(scratch.path().join("result"))?, b"good");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fork(&self) -> Result<Transaction, BeginError> {
        let when_durable = match self.when_durable {
            // The outermost one may be lazy.
            WhenDurable::WithTheOuter => WhenDurable::Later,
            same => same,
        };
        Ok(Transaction::new(self.session.fork()?, when_durable))
    }
}

/// A transaction within another: see [`Transaction::nest`].
#[derive(Debug)]
pub struct Nested<'outer> {
    transaction: Transaction,
    outer: PhantomData<&'outer mut Transaction>,
}

impl Nested<'_> {
    /// Makes the changes part of the outer transaction, whose commit makes them durable.
    pub fn commit(self) -> Result<Receipt, CommitError> {
        self.transaction.commit()
    }

    /// Drops the changes, as dropping the nested transaction does.
    pub fn abort(self) {
        drop(self);
    }
}

impl Deref for Nested<'_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.transaction
    }
}

impl DerefMut for Nested<'_> {
    fn deref_mut(&mut self) -> &mut Transaction {
        &mut self.transaction
    }
}
