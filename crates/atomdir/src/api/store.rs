//! An open store, and how transactions begin in it.

use super::door::StoreOptions;
use super::error::{BeginError, Conflict, OpenError, StoreError};
use super::history::{UndoError, cut_label};
use super::holding::{Holding, Opened};
use super::session::Session;
use super::transaction::Transaction;
use crate::StoreLocation;
use crate::compare::PathFilter;
use crate::served::Served;
use atomdir_protocol::Past;
use atomdir_types::{
    CommitDetails, CommitSummary, Conflicts, Durability, HistoryStatus, Isolation, Sequence,
    Timestamp, TransactionId,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open store. Clones are the same store. It is closed when the last clone and the last
/// transaction are gone.
///
/// # In this process
///
/// Where no service runs, the store is opened in this process alone: without another process,
/// a socket or a mount. Then
///
/// - opening it recovers it, and takes back commits that nobody has confirmed in time;
/// - other processes cannot open it as long as it is not [handed over](#handing-over): they get an
///   error that names the process that holds it;
/// - a thread of the library makes lazy commits durable and shortens the log. It sleeps
///   while there is nothing to do;
/// - everything happens with the rights that the process had when it opened the store. The
///   mode, the owner and the access control lists of files are checked as the kernel does;
/// - dropping the last clone makes all commits durable and empties the log. Call
///   [`close`](Store::close) to learn whether that worked. If it did not, or the process was
///   killed, the next process that opens the store recovers it;
/// - a process that is forked off cannot use the store.
///
/// # Handing over
///
/// A store that was opened by [`Door::Any`] and is open in this process is given up as soon as another
/// process wants it and no transaction and no file of it is open here. Before that, all commits are
/// made durable. The next use opens it again: through the service if one runs then,
/// and otherwise in this process. [`hand_over`](Store::hand_over) gives it up at once, for a store
/// opened by [`Door::Embedded`] as well.
#[derive(Debug, Clone)]
pub struct Store {
    holding: Arc<Holding>,
}

impl Store {
    pub(super) fn new(holding: Holding) -> Store {
        Store {
            holding: Arc::new(holding),
        }
    }

    /// Opens the store that contains `path`, as git finds a repository.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # let site = scratch.path();
    /// atomdir::init(site, None)?;
    /// let store = atomdir::Store::open(site)?;
    /// let tx = store.begin()?;
    /// tx.create_dir_all("conf")?;
    /// tx.write("conf/a.toml", b"port = 80\n")?;
    /// tx.write("conf/b.toml", b"name = \"b\"\n")?;
    /// tx.commit()?;
    /// # assert_eq!(std::fs::read(site.join("conf/a.toml"))?, b"port = 80\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
        StoreOptions::new().open(path)
    }

    /// Whether the store is now open in this process, and not reached through its service. It is in
    /// neither way just after it was handed over.
    pub fn is_embedded(&self) -> bool {
        self.holding.is_embedded()
    }

    /// If the store is open in this process, gives it up, so that another process can open it: makes
    /// all commits durable in the base and empties the log. The next use of this store opens it again,
    /// through the service if one runs then, and otherwise in this process. Fails while transactions
    /// or files of it are open. A store with a service needs no handing over.
    pub fn hand_over(&self) -> Result<(), StoreError> {
        self.holding.hand_over()
    }

    /// The store's root directory.
    pub fn root(&self) -> &Path {
        &self.location().root
    }

    /// The store as it is open now; it is opened again if it was handed over.
    pub(super) fn current(&self) -> Result<Opened, StoreError> {
        self.holding.current()
    }

    pub(super) fn location(&self) -> &StoreLocation {
        self.holding.location()
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Result<Transaction, BeginError> {
        self.transaction().begin()
    }

    /// Options for a transaction.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use atomdir::{Durability, Isolation};
    ///
    /// let tx = store
    ///     .transaction()
    ///     .isolation(Isolation::Serializable)
    ///     .durability(Durability::Lazy)
    ///     .label("nightly import")
    ///     .begin()?;
    /// tx.write("a", b"1")?;
    /// let receipt = tx.commit()?;
    /// receipt.wait_until_durable()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction(&self) -> TransactionOptions<'_> {
        TransactionOptions::new(self)
    }

    /// Makes all lazy commits durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        match self.holding.current()? {
            Opened::Embedded(store) => store.sync(),
            Opened::Served(store) => store.sync(),
        }
    }

    /// Closes the store. In this process, that makes all commits durable in the base and empties
    /// the log; it fails, and closes nothing, while clones of the store or transactions are
    /// left. If a service has the store, this only makes lazy commits durable.
    pub fn close(self) -> Result<(), StoreError> {
        match Arc::try_unwrap(self.holding) {
            Ok(holding) => holding.close(),
            Err(_) => Err(StoreError::InUse),
        }
    }

    pub(super) fn past_commits(
        &self,
        filter: &PathFilter,
        before: Option<Sequence>,
        limit: usize,
    ) -> Result<Vec<CommitSummary>, StoreError> {
        match self.holding.current()? {
            Opened::Embedded(store) => store.log_of(filter, before, limit),
            Opened::Served(store) => store.ask(|it| it.log_of(filter, before, limit as u64)),
        }
    }

    pub(super) fn newest_commit_at(&self, moment: Timestamp) -> Result<Sequence, StoreError> {
        match self.holding.current()? {
            Opened::Embedded(store) => store.commit_at(moment),
            Opened::Served(store) => store.ask(|it| it.commit_at(moment)),
        }
    }

    pub(super) fn commit_details(&self, commit: Sequence) -> Result<CommitDetails, UndoError> {
        match self.holding.current().map_err(BeginError::from)? {
            Opened::Embedded(store) => store.show(commit),
            Opened::Served(store) => store.show(commit),
        }
    }

    /// Fails in a process that was forked off.
    pub(super) fn require_here(&self) -> Result<(), StoreError> {
        self.holding.require_here()
    }

    pub(super) fn forget(
        &self,
        older_than: Option<Duration>,
    ) -> Result<Option<HistoryStatus>, StoreError> {
        match self.holding.current()? {
            Opened::Embedded(store) => store.prune(older_than),
            Opened::Served(store) => store.ask(|it| it.prune(older_than)),
        }
    }

    /// Lets changed settings take effect.
    pub(super) fn heed_settings(&self) -> Result<(), StoreError> {
        match self.holding.current()? {
            Opened::Embedded(store) => store.heed_settings(),
            Opened::Served(_) => Ok(()),
        }
    }

    /// Begins a transaction that shows or restores the past. Returns the objects that it shows in
    /// their present state.
    pub(super) fn session_from(
        &self,
        past: Past,
    ) -> Result<(Arc<dyn Session>, Vec<Conflict>), UndoError> {
        match self.holding.current().map_err(BeginError::from)? {
            Opened::Embedded(store) => store.begin_from(past),
            Opened::Served(store) => store.begin_from(past),
        }
    }

    pub(super) fn served(&self) -> Result<Arc<Served>, StoreError> {
        match self.holding.current()? {
            Opened::Embedded(_) => Err(StoreError::NeedsService),
            Opened::Served(store) => Ok(store),
        }
    }

    pub(super) fn session(&self, options: &Begin) -> Result<Arc<dyn Session>, BeginError> {
        self.holding.begin(|opened| match opened {
            Opened::Embedded(store) => store.begin(options),
            Opened::Served(store) => store.begin(options),
        })
    }
}

/// Options of a new transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begin {
    pub(crate) isolation: Isolation,
    pub(crate) durability: Durability,
    pub(crate) conflicts: Conflicts,
    pub(crate) first_try: Option<TransactionId>,
    pub(crate) label: Vec<u8>,
    /// Reads of files count only if they go through the library.
    pub(crate) declares_reads: bool,
}

/// How a transaction is to begin: see [`Store::transaction`].
#[derive(Debug, Clone)]
pub struct TransactionOptions<'store> {
    pub(super) store: &'store Store,
    pub(super) begin: Begin,
    pub(super) tries_max: u32,
}

impl<'store> TransactionOptions<'store> {
    fn new(store: &'store Store) -> Self {
        TransactionOptions {
            store,
            begin: Begin::default(),
            tries_max: super::retry::TRIES_MAX,
        }
    }

    /// Whether what was read is protected as well: by default it is not.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.begin.isolation = isolation;
        self
    }

    /// Whether the commit waits until it is durable: by default it does. A lazy commit is
    /// durable after a tenth of a second, or after the next durable commit.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.begin.durability = durability;
        self
    }

    /// When the transaction learns that an open one has written the same part.
    pub fn conflicts(mut self, conflicts: Conflicts) -> Self {
        self.begin.conflicts = conflicts;
        self
    }

    /// For a serializable transaction whose files are read only by this program and only through
    /// this library, not in its [view](Transaction::view): then conflicts with what was read are
    /// found between pages and attributes, as they are in a store that is open in this process.
    /// Otherwise, if a service has the store open, a transaction that reads a page of a file conflicts
    /// with every change of that file, because the kernel looks at attributes and reads ahead.
    pub fn own_reads_only(mut self, own_reads_only: bool) -> Self {
        self.begin.declares_reads = own_reads_only;
        self
    }

    /// The name in the log; cut to
    /// [`LABEL_LENGTH_MAX`](atomdir_protocol::LABEL_LENGTH_MAX) bytes.
    pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
        self.begin.label = cut_label(label.as_ref());
        self
    }

    /// How many times [`run`](Self::run) tries; at least once, by default 100 times.
    pub fn tries_max(mut self, tries_max: u32) -> Self {
        self.tries_max = tries_max.max(1);
        self
    }

    /// Begins the transaction.
    pub fn begin(&self) -> Result<Transaction, BeginError> {
        let session = self.store.session(&self.begin)?;
        Ok(Transaction::new(session, self.begin.durability.into()))
    }
}
