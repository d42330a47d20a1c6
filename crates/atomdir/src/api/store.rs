//! An open store, and how transactions begin in it.

use super::error::{BeginError, Conflict, OpenError, StoreError};
use super::history::UndoError;
use super::session::{Session, Syncable};
use super::transaction::Transaction;
use crate::compare::PathFilter;
use crate::connection::Connection;
use crate::embedded::Embedded;
use crate::location::find_with;
use crate::served::Served;
use crate::{ConnectError, FindError, StartService, StoreLocation, Trust};
use atomdir_protocol::{Committed, Past};
use atomdir_types::{
    CommitDetails, CommitSummary, Conflicts, Durability, HistoryStatus, Isolation, Sequence,
    Timestamp, TransactionId,
};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The way to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Door {
    /// The store's service if one runs, and otherwise this process.
    #[default]
    Any,
    /// This process alone, for as long as it has the store open: no service, no socket and no
    /// mount. Only the store's owner can do so.
    Embedded,
    /// The store's service alone.
    Service,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    door: Door,
    trust: Trust,
    start: StartService,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            door: Door::Any,
            trust: Trust::Listed,
            start: StartService::Never,
        }
    }
}

impl StoreOptions {
    /// The defaults: a trusted store, by its service or else in this process.
    pub fn new() -> StoreOptions {
        StoreOptions::default()
    }

    /// Which way to the store is taken.
    pub fn door(&mut self, door: Door) -> &mut StoreOptions {
        self.door = door;
        self
    }

    /// Which stores are used besides the caller's own and root's.
    pub fn trust(&mut self, trust: Trust) -> &mut StoreOptions {
        self.trust = trust;
        self
    }

    /// How a service is started if none runs. Without this, none is started.
    pub fn start_service(&mut self, start: StartService) -> &mut StoreOptions {
        self.start = start;
        self
    }

    /// Opens the store that contains `path`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, OpenError> {
        let location = find_with(path.as_ref(), self.trust)?;
        if location.transaction.is_some() {
            let path = path.as_ref().to_owned();
            return Err(FindError::InView { path }.into());
        }
        let inner = match self.door {
            Door::Service => self.serve(&location)?,
            Door::Embedded => self.embed(&location)?,
            Door::Any => match self.serve(&location) {
                Err(OpenError::Connect(ConnectError::NotRunning { .. })) => {
                    self.embed_or_serve(&location)?
                }
                served => served?,
            },
        };
        Ok(Store { inner, location })
    }

    fn serve(&self, location: &StoreLocation) -> Result<Inner, OpenError> {
        let served = Served::open(location, &self.start)?;
        Ok(Inner::Served(Arc::new(served)))
    }

    fn embed(&self, location: &StoreLocation) -> Result<Inner, OpenError> {
        let embedded = Embedded::open(location, || refuse_served(location))?;
        Ok(Inner::Embedded(Arc::new(embedded)))
    }

    /// No service ran a moment ago, and one may have started since.
    fn embed_or_serve(&self, location: &StoreLocation) -> Result<Inner, OpenError> {
        match self.embed(location) {
            Err(OpenError::Held { store, holder }) => match self.serve(location) {
                Err(OpenError::Connect(ConnectError::NotRunning { .. })) => {
                    Err(OpenError::Held { store, holder })
                }
                served => served,
            },
            embedded => embedded,
        }
    }
}

/// Fails if a service runs, past which this process must not go.
fn refuse_served(location: &StoreLocation) -> Result<(), OpenError> {
    match Connection::open(location, &StartService::Never) {
        Err(ConnectError::NotRunning { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(connection) => Err(OpenError::Held {
            store: location.root.clone(),
            holder: connection.service_holder(),
        }),
    }
}

/// An open store. Clones are the same store. It is closed when the last clone and the last
/// transaction are gone.
///
/// # In this process
///
/// Where no service runs, the store is opened in this process alone: without another process,
/// a socket or a mount. Then
///
/// - opening it recovers it, and takes back commits that nobody has confirmed in time;
/// - other processes cannot open it: they get an error that names the process that holds it;
/// - a thread of the library makes lazy commits durable and shortens the log. It sleeps
///   while there is nothing to do;
/// - everything happens with the rights that the process had when it opened the store. The
///   mode, the owner and the access control lists of files are checked as the kernel does;
/// - dropping the last clone makes all commits durable and empties the log. Call
///   [`close`](Store::close) to learn whether that worked. If it did not, or the process was
///   killed, the next process that opens the store recovers it;
/// - a process that is forked off cannot use the store.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) inner: Inner,
    location: StoreLocation,
}

#[derive(Debug, Clone)]
pub(super) enum Inner {
    Embedded(Arc<Embedded>),
    Served(Arc<Served>),
}

impl Store {
    /// Opens the store that contains `path`, as git finds a repository.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # let site = scratch.path();
    /// atomdir::init(site, None)?;
    /// let store = atomdir::Store::open(site)?;
    /// let tx = store.begin()?;
    /// tx.create_directory_all("conf")?;
    /// tx.write("conf/a.toml", b"port = 80\n")?;
    /// tx.write("conf/b.toml", b"name = \"b\"\n")?;
    /// tx.commit()?;
    /// # assert_eq!(std::fs::read(site.join("conf/a.toml"))?, b"port = 80\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Store, OpenError> {
        StoreOptions::new().open(path)
    }

    /// Whether the store is open in this process, and not reached through its service.
    pub fn is_embedded(&self) -> bool {
        matches!(self.inner, Inner::Embedded(_))
    }

    /// The store's root directory.
    pub fn root(&self) -> &Path {
        &self.location.root
    }

    pub(super) fn location(&self) -> &StoreLocation {
        &self.location
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
        match &self.inner {
            Inner::Embedded(store) => store.sync(),
            Inner::Served(store) => store.sync(),
        }
    }

    /// Closes the store. In this process, that makes all commits durable in the base and empties
    /// the log; it fails, and closes nothing, while clones of the store or transactions are
    /// left. If a service has the store, this only makes lazy commits durable.
    pub fn close(self) -> Result<(), StoreError> {
        match self.inner {
            Inner::Embedded(store) => match Arc::try_unwrap(store) {
                Ok(embedded) => embedded.close(),
                Err(_) => Err(StoreError::InUse),
            },
            Inner::Served(store) => store.sync(),
        }
    }

    pub(super) fn past_commits(
        &self,
        filter: &PathFilter,
        before: Option<Sequence>,
        limit: usize,
    ) -> Result<Vec<CommitSummary>, StoreError> {
        match &self.inner {
            Inner::Embedded(store) => store.log_of(filter, before, limit),
            Inner::Served(store) => store.ask(|it| it.log_of(filter, before, limit as u64)),
        }
    }

    pub(super) fn newest_commit_at(&self, moment: Timestamp) -> Result<Sequence, StoreError> {
        match &self.inner {
            Inner::Embedded(store) => store.commit_at(moment),
            Inner::Served(store) => store.ask(|it| it.commit_at(moment)),
        }
    }

    pub(super) fn commit_details(&self, commit: Sequence) -> Result<CommitDetails, UndoError> {
        match &self.inner {
            Inner::Embedded(store) => store.show(commit),
            Inner::Served(store) => store.show(commit),
        }
    }

    /// Fails in a process that was forked off.
    pub(super) fn require_here(&self) -> Result<(), StoreError> {
        match &self.inner {
            Inner::Embedded(store) => store.require_here(),
            Inner::Served(store) => store.require_here(),
        }
    }

    pub(super) fn forget(
        &self,
        older_than: Option<Duration>,
    ) -> Result<Option<HistoryStatus>, StoreError> {
        match &self.inner {
            Inner::Embedded(store) => store.prune(older_than),
            Inner::Served(store) => store.ask(|it| it.prune(older_than)),
        }
    }

    /// Lets changed settings take effect.
    pub(super) fn heed_settings(&self) -> Result<(), StoreError> {
        match &self.inner {
            Inner::Embedded(store) => store.heed_settings(),
            Inner::Served(_) => Ok(()),
        }
    }

    /// Begins a transaction that shows or restores the past. Returns the objects that it shows in
    /// their present state.
    pub(super) fn session_from(
        &self,
        past: Past,
    ) -> Result<(Arc<dyn Session>, Vec<Conflict>), UndoError> {
        match &self.inner {
            Inner::Embedded(store) => store.begin_from(past),
            Inner::Served(store) => store.begin_from(past),
        }
    }

    pub(super) fn served(&self) -> Result<&Arc<Served>, StoreError> {
        match &self.inner {
            Inner::Embedded(_) => Err(StoreError::NeedsService),
            Inner::Served(store) => Ok(store),
        }
    }

    pub(super) fn session(&self, options: &Begin) -> Result<Arc<dyn Session>, BeginError> {
        match &self.inner {
            Inner::Embedded(store) => store.begin(options),
            Inner::Served(store) => store.begin(options),
        }
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
        let label = label.as_ref();
        let length = label.len().min(atomdir_protocol::LABEL_LENGTH_MAX);
        self.begin.label = label[..length].to_vec();
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

/// When what a transaction commits survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenDurable {
    AtOnce,
    Later,
    WithTheOuter,
}

impl From<Durability> for WhenDurable {
    fn from(durability: Durability) -> WhenDurable {
        match durability {
            Durability::Durable | Durability::Deferred => WhenDurable::AtOnce,
            Durability::Lazy => WhenDurable::Later,
        }
    }
}

/// The result of a successful commit.
#[derive(Clone)]
pub struct Receipt {
    sequence: Option<Sequence>,
    changes: u64,
    stalled: Option<String>,
    when_durable: WhenDurable,
    store: Weak<dyn Syncable>,
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Receipt")
            .field("sequence", &self.sequence)
            .field("changes", &self.changes)
            .field("stalled", &self.stalled)
            .finish_non_exhaustive()
    }
}

impl Receipt {
    pub(super) fn new(
        done: Committed,
        when_durable: WhenDurable,
        store: Weak<dyn Syncable>,
    ) -> Receipt {
        Receipt {
            sequence: done.sequence,
            changes: done.changes,
            stalled: done.stalled,
            when_durable,
            store,
        }
    }

    /// The commit's place in the commit order. `None` if nothing had changed, or if the
    /// transaction was nested and is now part of the outer one.
    pub fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// How many paths were changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The obstacle that keeps the commit from the base, in words, if there is one. The commit
    /// has happened and is durable, and the base will show it when the obstacle is removed.
    pub fn stalled(&self) -> Option<&str> {
        self.stalled.as_deref()
    }

    /// Whether the commit was durable when it returned. A [lazy](Durability::Lazy) one was not, and
    /// a nested transaction is durable with the outermost one.
    pub fn is_durable(&self) -> bool {
        self.when_durable == WhenDurable::AtOnce
    }

    /// Returns when the commit and all before it are durable. Fails for a lazy commit whose
    /// store was closed: closing has made it durable, or has reported why it could not. Fails for a
    /// nested transaction, whose changes are not committed yet.
    pub fn wait_until_durable(&self) -> Result<(), StoreError> {
        match (self.when_durable, self.store.upgrade()) {
            (WhenDurable::AtOnce, _) => Ok(()),
            (WhenDurable::WithTheOuter, _) => {
                let reason = "it becomes durable when the outermost transaction is committed";
                Err(StoreError::Other(reason.to_owned()))
            }
            (WhenDurable::Later, Some(store)) => store.sync(),
            (WhenDurable::Later, None) => Err(StoreError::Closed),
        }
    }
}
