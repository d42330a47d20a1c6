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
    #[error("{workload}: the transaction's outcome differs from the plain one:\n{difference}")]
    Differs {
        workload: &'static str,
        difference: String,
    },
    #[error("`atomdir begin` printed no view path:\n{0}")]
    NoView(String),
    #[error(transparent)]
    Find(#[from] atomdir::FindError),
    #[error(transparent)]
    Connect(#[from] atomdir::ConnectError),
    #[error(transparent)]
    Request(#[from] atomdir::RequestError),
    #[error(transparent)]
    Commit(#[from] atomdir::CommitError),
}

pub type Result<T> = std::result::Result<T, Error>;

pub trait Describe<T> {
    fn describe(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> Describe<T> for io::Result<T> {
    fn describe(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            operation,
            path: path.to_owned(),
            source,
        })
    }
}
