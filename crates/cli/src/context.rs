//! Where a verb acts: the caller's directory and the store that holds it.

use crate::arguments::Global;
use crate::ended;
use crate::error::Error;
use crate::output::Output;
use atomdir::client::{Connection, Current, FailureKind};
use atomdir::{ConnectError, FindError, StartService, StoreLocation, TransactionId, Trust};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Programs in a transaction's view find its id in this variable.
pub const TRANSACTION_VARIABLE: &str = "ATOMDIR_TX";

const STORE_VARIABLE: &str = "ATOMDIR_STORE";

pub struct Context {
    pub output: Output,
    directory: PathBuf,
    /// Directories in other stores, whose transactions are committed together with this one's.
    others: Vec<PathBuf>,
    /// Where commands start, if not in the first store.
    start: Option<PathBuf>,
    trust: Trust,
    current_transaction: Option<OsString>,
    current: Option<Current>,
    /// Whether the user sees what we print now.
    tells_news: bool,
}

/// A connection to a store's service.
pub struct Connected {
    /// The store's root.
    pub root: PathBuf,
    /// The caller's directory, relative to the root.
    pub start: PathBuf,
    /// The transaction in whose view the caller's directory is.
    view: Option<TransactionId>,
    /// The root of that view.
    view_root: Option<PathBuf>,
    /// The store's control directory. `None`: we run in a view and cannot see it.
    pub control: Option<PathBuf>,
    pub connection: Connection,
    /// Another process uses the connection from now on, so this one must not.
    pub has_heir: bool,
}

impl Context {
    /// Changes to the directory that the first `-C` names.
    pub fn new(global: &Global, output: Output) -> Result<Context, Error> {
        let (first, others) = match global.directories.split_first() {
            Some((first, others)) => (Some(first), others),
            None => (None, &[][..]),
        };
        let others = others.iter().map(|other| {
            let absolute = std::path::absolute(other);
            absolute.map_err(|_| cannot_act_in(other, Errno::NOENT))
        });
        let others = others.collect::<Result<Vec<PathBuf>, Error>>()?;
        let directory = match first {
            None => None,
            Some(directory) => match rustix::process::chdir(directory) {
                Ok(()) => None,
                // A guard whose service was killed lies over it: `umount` needs no more than its path.
                Err(Errno::NOTCONN | Errno::CONNABORTED) => std::path::absolute(directory).ok(),
                Err(errno) => return Err(cannot_act_in(directory, errno)),
            },
        };
        let directory = directory.map_or_else(std::env::current_dir, Ok);
        let directory = directory.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            cannot_act_in(Path::new("the current directory"), errno)
        })?;
        Ok(Context {
            output,
            directory,
            others,
            start: None,
            trust: if global.trust {
                Trust::Everyone
            } else {
                Trust::Listed
            },
            current_transaction: std::env::var_os(TRANSACTION_VARIABLE),
            current: Current::from_environment(),
            tells_news: true,
        })
    }

    /// The user is to learn of transactions that ended by force from a later command.
    pub fn without_news(self) -> Context {
        Context {
            tells_news: false,
            ..self
        }
    }

    /// The same in several stores, whose roots these are; `None`: they are none. Commands start where
    /// the caller is.
    pub fn of_stores(&self, roots: impl IntoIterator<Item = PathBuf>) -> Option<Context> {
        let mut roots = roots.into_iter();
        Some(Context {
            output: self.output,
            directory: roots.next()?,
            others: roots.collect(),
            start: Some(self.directory.clone()),
            trust: self.trust,
            current_transaction: self.current_transaction.clone(),
            current: self.current.clone(),
            tells_news: self.tells_news,
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directories that further `-C` name.
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }

    pub fn trust(&self) -> Trust {
        self.trust
    }

    pub fn store(&self) -> Result<StoreLocation, Error> {
        self.store_at(&self.directory)
    }

    /// Finds a store. A view does not show the control directory, so a program in
    /// one finds only a way to the store's service.
    pub fn store_at(&self, start: &Path) -> Result<StoreLocation, Error> {
        let mut found = atomdir::client::find_with(start, self.trust);
        if let Err(FindError::Io { errno, .. }) = &found
            && matches!(*errno, Errno::NOTCONN | Errno::CONNABORTED)
            && self.bring_guard_back(start)?
        {
            found = atomdir::client::find_with(start, self.trust);
        }
        found.map_err(|error| match (&error, &self.current_transaction) {
            (FindError::NoStore { .. } | FindError::InView { .. }, Some(transaction)) => {
                inside(transaction)
            }
            // A stranger's store above ours must not keep us from ours.
            (FindError::Untrusted { store, .. }, Some(transaction))
                if self.is_above_current(start, store) =>
            {
                inside(transaction)
            }
            _ => error.into(),
        })
    }

    /// If the guard of a killed service lies over the store, and the store's settings say that each
    /// service mounts one, starts the service. Returns whether the guard is back.
    pub fn bring_guard_back(&self, start: &Path) -> Result<bool, Error> {
        match atomdir::client::bring_guard_back(start, &own_program()) {
            None => Ok(false),
            Some(started) => {
                started?;
                let start = start.display();
                self.output.detail(format_args!(
                    "started the service over '{start}' again, whose guard was dead"
                ));
                // This process may still be in the dead one.
                let _ = rustix::process::chdir(&self.directory);
                Ok(true)
            }
        }
    }

    fn is_above_current(&self, start: &Path, found: &Path) -> bool {
        self.current.as_ref().is_some_and(|current| {
            start.starts_with(&current.store)
                && current.store.starts_with(found)
                && current.store != found
        })
    }

    /// Starts the service if none runs.
    pub fn connect(&self) -> Result<Connected, Error> {
        match self.store() {
            Err(error @ Error::Inside { .. }) => self.connect_within(error),
            other => self.connect_to_store(other?),
        }
    }

    /// Like [`connect`](Context::connect), for the store that holds another directory.
    pub fn connect_at(&self, start: &Path) -> Result<Connected, Error> {
        self.connect_to_store(self.store_at(start)?)
    }

    fn connect_to_store(&self, store: StoreLocation) -> Result<Connected, Error> {
        let start = StartService::with_program(own_program(), &store);
        let connection = Connection::open(&store, &start)?;
        if connection.started() {
            let root = store.root.display();
            self.output
                .detail(format_args!("started the service of {root}"));
        }
        Ok(self.outside(store, connection))
    }

    /// Connects through the socket that the surrounding transaction names.
    fn connect_within(&self, not_found: Error) -> Result<Connected, Error> {
        let Some(current) = &self.current else {
            return Err(not_found);
        };
        let mut connection = Connection::open_within(current)?;
        let start = match self.directory.strip_prefix(&current.store) {
            Ok(start) => start.to_owned(),
            // Without a mount namespace, views are at their own paths.
            Err(_) => {
                let view = connection.status(current.transaction)?.view_path;
                let start = self.directory.strip_prefix(OsStr::from_bytes(&view));
                start.map_err(|_| not_found)?.to_owned()
            }
        };
        Ok(Connected {
            root: current.store.clone(),
            start,
            view: None,
            view_root: None,
            control: None,
            connection,
            has_heir: false,
        })
    }

    /// The transaction of this store to use if none is named: that of the view in
    /// which the caller's directory is, or the one that we run in.
    pub fn current(&self, connected: &Connected) -> Option<TransactionId> {
        connected.view.or_else(|| self.around(connected))
    }

    /// The transaction of this store that we run in.
    fn around(&self, connected: &Connected) -> Option<TransactionId> {
        let current = self.current.as_ref()?;
        (current.store == connected.root).then_some(current.transaction)
    }

    /// Says that a transaction of this store commits by itself, if we run in one of another store:
    /// an abort there does not take it back. `--in none` says that the user means it.
    pub fn note_other_store(&self, connected: &Connected, is_meant: bool) {
        let store = std::env::var_os(STORE_VARIABLE);
        let (Some(transaction), Some(store)) = (&self.current_transaction, store) else {
            return;
        };
        if !is_meant && Path::new(&store) != connected.root {
            self.output.note(format_args!(
                "this runs in transaction {} of '{}': what it commits to '{}' takes effect at once, \
                 and stays if that transaction is aborted; `--in none` says that this is meant",
                transaction.to_string_lossy(),
                store.display(),
                connected.root.display()
            ));
        }
    }

    /// A command that runs in a transaction would wait for ever until nobody is in it.
    pub fn refuse_to_wait_inside(
        &self,
        connected: &mut Connected,
        transaction: TransactionId,
    ) -> Result<(), Error> {
        match self.is_inside(connected, transaction)? {
            true => Err(Error::usage(format!(
                "transaction {transaction} is the one that this runs in: to wait for its end from \
                 within would never end"
            ))),
            false => Ok(()),
        }
    }

    /// Whether we run in the transaction, or in one nested in it. Then it cannot
    /// end before we do.
    pub fn is_inside(
        &self,
        connected: &mut Connected,
        transaction: TransactionId,
    ) -> Result<bool, Error> {
        let mut around = self.around(connected);
        while let Some(one) = around {
            if one == transaction {
                return Ok(true);
            }
            around = match connected.connection.status(one) {
                Ok(status) => status.outer,
                // Within a transaction we do not see the transactions around it.
                Err(error) if error.kind() == Some(FailureKind::NoSuchTransaction) => None,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(false)
    }

    /// Whether we run in a transaction nested in this one, which then cannot end before
    /// we do.
    pub fn is_below(
        &self,
        connected: &mut Connected,
        transaction: TransactionId,
    ) -> Result<bool, Error> {
        if self.around(connected) == Some(transaction) {
            return Ok(false);
        }
        self.is_inside(connected, transaction)
    }

    /// Connects, and finds the transaction that the user means as
    /// [`Context::transaction`] does.
    pub fn connect_to(
        &self,
        named: Option<TransactionId>,
    ) -> Result<(Connected, TransactionId), Error> {
        match (self.connect_if_open()?, named) {
            (Some(mut connected), named) => {
                let transaction = self.transaction(named, &mut connected)?;
                Ok((connected, transaction))
            }
            // A new service knows what became of it.
            (None, Some(transaction)) => match self.connect() {
                Ok(connected) => Ok((connected, transaction)),
                Err(_) => Err(Error::NotOpen { transaction }),
            },
            (None, None) => Err(Error::NoTransaction),
        }
    }

    /// Connects if transactions may be open: to a service that runs, or, if some may have
    /// survived the last one or are in a program that has opened the store by itself, to a new one.
    pub fn connect_if_open(&self) -> Result<Option<Connected>, Error> {
        if let Some(running) = self.connect_if_running()? {
            return Ok(Some(running));
        }
        let store = self.store()?;
        match store.may_have_survivors() || store.holder().is_some() {
            true => self.connect().map(Some),
            false => Ok(None),
        }
    }

    /// Returns `None` if no service runs.
    pub fn connect_if_running(&self) -> Result<Option<Connected>, Error> {
        match self.connect_to_running() {
            Err(Error::Connect(ConnectError::NotRunning { .. })) => Ok(None),
            other => other.map(Some),
        }
    }

    pub fn connect_to_running(&self) -> Result<Connected, Error> {
        let store = match self.store() {
            Err(error @ Error::Inside { .. }) => return self.connect_within(error),
            other => other?,
        };
        let connection = Connection::open(&store, &StartService::Never)?;
        Ok(self.outside(store, connection))
    }

    /// Connects to the service of the store whose root this is; `None`: it has none.
    pub fn connect_to_running_at(&self, root: &Path) -> Result<Option<Connected>, Error> {
        let store = StoreLocation::at_with(root, self.trust)?;
        match Connection::open(&store, &StartService::Never) {
            Ok(connection) => Ok(Some(self.outside(store, connection))),
            Err(ConnectError::NotRunning { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn outside(&self, store: StoreLocation, mut connection: Connection) -> Connected {
        if self.tells_news {
            ended::tell_news(&mut connection, self.output);
        }
        Connected::outside(&self.directory, store, connection)
    }

    /// The caller's directory for a command, relative to the store's root or absolute.
    pub fn start_in<'a>(&'a self, connected: &'a Connected) -> &'a Path {
        self.start.as_deref().unwrap_or(&connected.start)
    }

    /// The transaction that the user means: the named one, by default the current
    /// one, and without a current one the user's only open one.
    pub fn transaction(
        &self,
        named: Option<TransactionId>,
        connected: &mut Connected,
    ) -> Result<TransactionId, Error> {
        if let Some(transaction) = named.or_else(|| self.current(connected)) {
            return Ok(transaction);
        }
        if let (Some(current), None) = (&self.current_transaction, &self.current) {
            let text = current.to_string_lossy();
            return crate::arguments::transaction_id(&text).map_err(|message| {
                Error::usage(format!("{TRANSACTION_VARIABLE} is '{text}': {message}"))
            });
        }
        let user = rustix::process::geteuid().as_raw();
        let mut own = connected.connection.transactions()?;
        own.retain(|transaction| transaction.owner == user);
        match own.as_slice() {
            [] => Err(Error::NoTransaction),
            [only] => Ok(only.transaction),
            _ => Err(Error::SeveralTransactions { transactions: own }),
        }
    }
}

impl Connected {
    /// Translates a path of the caller's: one in the view that they are in means
    /// the same path in the store.
    pub fn out_of_view<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        let view_root = self.view_root.as_ref();
        match view_root.and_then(|root| path.strip_prefix(root).ok()) {
            Some(below) => Cow::Owned(self.root.join(below)),
            None => Cow::Borrowed(path),
        }
    }

    fn outside(directory: &Path, store: StoreLocation, connection: Connection) -> Connected {
        let depth = store.start.components().count();
        let view_root = directory.ancestors().nth(depth);
        Connected {
            view_root: view_root
                .filter(|_| store.transaction.is_some())
                .map(Path::to_owned),
            root: store.root,
            start: store.start,
            view: store.transaction,
            control: Some(store.control),
            connection,
            has_heir: false,
        }
    }
}

fn inside(transaction: &OsStr) -> Error {
    Error::Inside {
        transaction: transaction.to_string_lossy().into_owned(),
    }
}

fn cannot_act_in(directory: &Path, errno: Errno) -> Error {
    Error::Directory {
        directory: directory.to_owned(),
        errno,
    }
}

/// The program that starts the service. The link works even if the file was replaced.
pub fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(program) if rustix::fs::stat(&program).is_ok() => program,
        _ => PathBuf::from("/proc/self/exe"),
    }
}
