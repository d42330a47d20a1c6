use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{command}\nended with {status}:\n{output}")]
    Command {
        command: String,
        status: std::process::ExitStatus,
        output: String,
    },
    #[error("no atomdir at {}; build it with `cargo build --release -p atomdir-cli`", .0.display())]
    NoBinary(PathBuf),
    #[error("{workload}: the outcome of {side} differs:\n{difference}")]
    Differs {
        workload: String,
        side: &'static str,
        difference: String,
    },
    #[error("the service made {made} commits instead of {expected}")]
    Commits { expected: u64, made: u64 },
    #[error("after recovery {found} bytes are new instead of {expected}")]
    Recovered { expected: u64, found: String },
    #[error("'{path}' has wrong contents after a commit or its undo: {found}")]
    Undone { path: PathBuf, found: String },
    #[error("the mailboxes have {found} messages instead of {expected}")]
    Delivered { expected: u64, found: u64 },
    #[error("a search has found {found} entries instead of {expected}")]
    Entries { expected: u64, found: u64 },
    #[error("no workload is called {0}")]
    NoWorkload(String),
    #[error("this workload has no row called {0:?}")]
    NoRow(String),
    #[error("no load is called {0:?}")]
    NoLoad(Vec<String>),
    #[error("this side cannot {0}")]
    NoSide(&'static str),
    /// An error of a database, another library, or the engine.
    #[error("{0}")]
    Peer(String),
    #[error("crates/sqlite/bench/measure.py printed {0:?}, which has no figures")]
    Printed(String),
    #[error("'{}' is not output of atomdir-bench --json: {problem}", path.display())]
    NotRows { path: PathBuf, problem: String },
    #[error("'{}' needs the lines {begin:?} and {end:?}; the tables go between them", path.display())]
    NoMarkers {
        path: PathBuf,
        begin: &'static str,
        end: &'static str,
    },
    #[error("{0} of the workloads failed")]
    Workloads(usize),
    #[error("a committing process printed {found:?} instead of {expected:?}")]
    OutOfStep {
        expected: &'static str,
        found: String,
    },
    #[error(transparent)]
    Find(#[from] atomdir::FindError),
    #[error(transparent)]
    Connect(#[from] atomdir::ConnectError),
    #[error(transparent)]
    Request(#[from] atomdir::client::RequestError),
    #[error(transparent)]
    Commit(#[from] atomdir::client::CommitError),
    #[error(transparent)]
    Init(#[from] atomdir::InitError),
    #[error(transparent)]
    Library(#[from] atomdir::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

pub trait Describe<T> {
    fn describe(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Describe<T> for std::result::Result<T, E> {
    fn describe(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            operation,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
