//! Where a verb acts: the caller's directory and the store that holds it.

use crate::arguments::Global;
use crate::error::Error;
use crate::output::Output;
use atomdir::{ConnectError, Connection, FindError, StartService, StoreLocation, TransactionId};
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the current transaction to what runs in its view.
pub const TRANSACTION_VARIABLE: &str = "ATOMDIR_TX";

pub struct Context {
    pub output: Output,
    directory: PathBuf,
    current_transaction: Option<OsString>,
}

/// A store and a connection to its service.
pub struct Connected {
    pub store: StoreLocation,
    pub connection: Connection,
}

impl Context {
    /// Changes to the directory that `-C` names.
    pub fn new(global: &Global, output: Output) -> Result<Context, Error> {
        if let Some(directory) = &global.directory {
            rustix::process::chdir(directory).map_err(|errno| cannot_act_in(directory, errno))?;
        }
        let directory = std::env::current_dir().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            cannot_act_in(Path::new("the current directory"), errno)
        })?;
        Ok(Context {
            output,
            directory,
            current_transaction: std::env::var_os(TRANSACTION_VARIABLE),
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn store(&self) -> Result<StoreLocation, Error> {
        self.store_at(&self.directory)
    }

    /// A view does not show the control directory, so nothing that runs in one
    /// finds the store.
    pub fn store_at(&self, start: &Path) -> Result<StoreLocation, Error> {
        atomdir::find(start).map_err(|error| match (&error, &self.current_transaction) {
            (FindError::NoStore { .. }, Some(transaction)) => Error::Inside {
                transaction: transaction.to_string_lossy().into_owned(),
            },
            _ => error.into(),
        })
    }

    /// Starts the service if it does not run.
    pub fn connect(&self) -> Result<Connected, Error> {
        let store = self.store()?;
        let start = StartService::with_program(own_program(), &store);
        let connection = Connection::open(&store, &start)?;
        if connection.started() {
            let root = store.root.display();
            self.output
                .detail(format_args!("started the service of {root}"));
        }
        Ok(Connected { store, connection })
    }

    /// `None` when no service runs: then no transaction is open either.
    pub fn connect_if_running(&self) -> Result<Option<Connected>, Error> {
        match self.connect_to_running() {
            Err(Error::Connect(ConnectError::NotRunning { .. })) => Ok(None),
            other => other.map(Some),
        }
    }

    pub fn connect_to_running(&self) -> Result<Connected, Error> {
        let store = self.store()?;
        let connection = Connection::open(&store, &StartService::Never)?;
        Ok(Connected { store, connection })
    }

    /// The transaction that the user means: the one named, else the current
    /// one, else the only one they have open.
    pub fn transaction(
        &self,
        named: Option<TransactionId>,
        connection: &mut Connection,
    ) -> Result<TransactionId, Error> {
        if let Some(transaction) = named {
            return Ok(transaction);
        }
        if let Some(current) = &self.current_transaction {
            let text = current.to_string_lossy();
            return crate::arguments::transaction_id(&text).map_err(|message| {
                Error::usage(format!("{TRANSACTION_VARIABLE} is '{text}': {message}"))
            });
        }
        let user = rustix::process::geteuid().as_raw();
        let mut own = connection.transactions()?;
        own.retain(|transaction| transaction.owner == user);
        match own.as_slice() {
            [] => Err(Error::NoTransaction),
            [only] => Ok(only.transaction),
            several => Err(Error::SeveralTransactions {
                transactions: several.iter().map(|status| status.transaction).collect(),
            }),
        }
    }
}

fn cannot_act_in(directory: &Path, errno: Errno) -> Error {
    Error::Directory {
        directory: directory.to_owned(),
        errno,
    }
}

/// What starts the service. The link works also when the file was replaced.
fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(program) if rustix::fs::stat(&program).is_ok() => program,
        _ => PathBuf::from("/proc/self/exe"),
    }
}
