//! Transactions and files that several owners keep, for languages without lifetimes.

use super::error::{BeginError, CommitError, FileError, SavepointError};
use super::file::{File, OpenOptions};
use super::history::{ChangedPath, Refreshed, Take};
use super::receipt::{Receipt, WhenDurable};
use super::session::Session;
use super::transaction::Transaction;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// A transaction that several owners keep, for bindings to other languages and for data
/// structures that cannot borrow. Programs in Rust otherwise use [`Transaction`], whose rules
/// the compiler checks.
///
/// Clones are the same transaction. Any of them may commit or abort it; what is then done with
/// the others, and with files that are still open, fails. It is aborted when the last clone and
/// the last open file are dropped.
///
/// ```
/// # let scratch = atomdir_testing::Scratch::new("doc");
/// # atomdir::init(scratch.path(), None)?;
/// # let store = atomdir::Store::open(scratch.path())?;
/// use atomdir::{OpenOptions, SharedTransaction};
///
/// let tx = SharedTransaction::from(store.begin()?);
/// let options = OpenOptions::new().write(true).create(true).clone();
/// let file = tx.open_shared("a", &options)?;
/// std::thread::spawn(move || file.write_all_at(b"1", 0)).join().unwrap()?;
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedTransaction {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    transaction: Transaction,
    open_files: AtomicUsize,
    /// Held shared while a file is opened and counted, and exclusively by what must meet no open
    /// file.
    opening: RwLock<()>,
}

impl From<Transaction> for SharedTransaction {
    fn from(transaction: Transaction) -> SharedTransaction {
        SharedTransaction {
            shared: Arc::new(Shared {
                transaction,
                open_files: AtomicUsize::new(0),
                opening: RwLock::new(()),
            }),
        }
    }
}

impl Deref for SharedTransaction {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.shared.transaction
    }
}

impl SharedTransaction {
    /// Opens a file that keeps the transaction.
    pub fn open_shared(
        &self,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<SharedFile, FileError> {
        let path = path.as_ref();
        let _opening = self.shared.opening.read();
        let file = self.session.clone().open_shared(path, options);
        let file = file.map_err(self.failed("open", path))?;
        self.shared.open_files.fetch_add(1, Ordering::AcqRel);
        Ok(SharedFile {
            file: File::new(file, &self.session, path, options.append),
            _counted: Counted(self.clone()),
        })
    }

    /// How many files are open in it.
    pub fn open_files(&self) -> usize {
        self.shared.open_files.load(Ordering::Acquire)
    }

    /// Commits the transaction for all its owners. If this fails, it stays open, unless the
    /// error says otherwise.
    pub fn commit(&self) -> Result<Receipt, CommitError> {
        self.commit_shared()
    }

    /// Like [`Transaction::commit_with_sides`], for all its owners. Fails while files are open if
    /// texts are to be merged.
    pub fn commit_with_sides(&self, sides: &[Take]) -> Result<Receipt, CommitError> {
        match sides.contains(&Take::Merge) {
            true => self.without_open_files(|_| self.commit_shared_with_sides(sides)),
            false => self.commit_shared_with_sides(sides),
        }
    }

    /// Aborts the transaction for all its owners. Does nothing if it has ended.
    pub fn abort(&self) {
        self.abort_shared();
    }

    /// Like [`Transaction::roll_back`]. Fails while files are open.
    pub fn roll_back(&self, savepoint: impl AsRef<[u8]>) -> Result<(), SavepointError> {
        let _no_opening = self.shared.opening.write();
        match self.open_files() {
            0 => self.session.roll_back(savepoint.as_ref()),
            count => Err(SavepointError::FilesOpen { count }),
        }
    }

    /// Like [`Transaction::refresh`]. Fails while files are open.
    pub fn refresh(&self) -> Result<Refreshed, CommitError> {
        self.without_open_files(|session| session.refresh())
    }

    /// Like [`Transaction::abort_part`]. Fails while files are open.
    pub fn abort_part(&self, paths: &[&Path]) -> Result<Vec<ChangedPath>, CommitError> {
        let dropped = self.without_open_files(|session| session.abort_part(paths))?;
        Ok(dropped.into_iter().map(ChangedPath::from).collect())
    }

    fn without_open_files<T>(
        &self,
        act: impl FnOnce(&dyn Session) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let _no_opening = self.shared.opening.write();
        match self.open_files() {
            0 => act(&*self.session),
            count => Err(CommitError::InUse(format!(
                "{count} files are open in the transaction; close them first"
            ))),
        }
    }

    /// Like [`Transaction::nest`], but several can be nested at the same time, unless the
    /// transaction is serializable. If several change the same thing, the first to commit wins, and
    /// the others have a conflict. Before all have ended, names in this transaction cannot be
    /// changed, and it cannot be committed.
    pub fn nest(&self) -> Result<SharedTransaction, BeginError> {
        Ok(Transaction::new(self.session.nest()?, WhenDurable::WithTheOuter).into())
    }
}

/// A file that is open in a [`SharedTransaction`], and keeps it.
#[derive(Debug)]
pub struct SharedFile {
    // Dropped first, so that it is closed when it is no longer counted.
    file: File<'static>,
    _counted: Counted,
}

/// One of the open files that a transaction counts.
#[derive(Debug)]
struct Counted(SharedTransaction);

impl Deref for SharedFile {
    type Target = File<'static>;

    fn deref(&self) -> &File<'static> {
        &self.file
    }
}

impl DerefMut for SharedFile {
    fn deref_mut(&mut self) -> &mut File<'static> {
        &mut self.file
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.shared.open_files.fetch_sub(1, Ordering::AcqRel);
    }
}
