use crate::ViewRootError;
use crate::accounts::describe_user;
use crate::connection::Parts;
use crate::mounts;
use crate::trust::{Distrust, configuration};
use atomdir_disk::reason;
use atomdir_protocol::frame::FrameError;
use atomdir_protocol::handshake::HandshakeError;
use atomdir_protocol::{Conflict, ExitCode, Failure, FailureKind};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The exit code and the hint that a program needs besides the message of an error.
pub trait Explain: std::error::Error {
    fn exit_code(&self) -> ExitCode;
    /// Advice to the user, if the message holds none.
    fn hint(&self) -> Option<String>;
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    #[error("no store holds '{start}': neither it nor a directory above it has a .atomdir")]
    NoStore { start: PathBuf },
    #[error("'{path}' is in the view of a transaction, from which its store cannot be reached")]
    InView { path: PathBuf },
    #[error(
        "'{path}' looks like a view, but {} may have mounted it, so it is not taken for one",
        describe_user(*user)
    )]
    ForeignView { path: PathBuf, user: u32 },
    #[error("the store '{store}' is not trusted: {reason}")]
    Untrusted {
        store: PathBuf,
        reason: Distrust,
        /// The caller's configuration, which can list the store.
        configuration: Option<PathBuf>,
    },
    #[error("cannot look for a store at '{path}': {errno}", errno = reason(errno))]
    Io { path: PathBuf, errno: Errno },
    #[error("'{path}' is neither a control directory nor a file that names one")]
    NotAControl { path: PathBuf },
    #[error("'{root}' is a copy of the store whose control directory is '{control}'")]
    Copied { root: PathBuf, control: PathBuf },
    #[error(
        "'{path}' says that the control directory is '{control}', which cannot be used: {reason}"
    )]
    BadControl {
        path: PathBuf,
        control: PathBuf,
        reason: String,
    },
}

impl FindError {
    pub(crate) fn untrusted(store: &Path, reason: Distrust) -> FindError {
        FindError::Untrusted {
            store: store.to_owned(),
            reason,
            configuration: configuration::path(),
        }
    }
}

impl Explain for FindError {
    fn exit_code(&self) -> ExitCode {
        match self {
            FindError::NoStore { .. } | FindError::InView { .. } => ExitCode::NotFound,
            FindError::ForeignView { .. } | FindError::Untrusted { .. } => ExitCode::NotPermitted,
            FindError::Io { errno, .. } => errno_exit_code(*errno),
            FindError::NotAControl { .. }
            | FindError::BadControl { .. }
            | FindError::Copied { .. } => ExitCode::Configuration,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            FindError::NoStore { start } => may_become_store(start)
                .then(|| format!("`atomdir init {}` makes it a store", for_shell(start))),
            FindError::InView { .. } | FindError::ForeignView { .. } => Some(
                "name the store and the transaction, from outside the view: `atomdir -C STORE diff TX`"
                    .to_owned(),
            ),
            FindError::Untrusted {
                store,
                configuration,
                ..
            } => Some(trust_hint(store, configuration.as_deref())),
            FindError::BadControl { path, .. } => Some(format!(
                "if the control directory was moved, write its path into {}",
                path.display()
            )),
            FindError::Copied { root, .. } => Some(format!(
                "`rm {0}/.atomdir && atomdir init {0}` makes the copy a store of its own",
                for_shell(root)
            )),
            FindError::Io { .. } | FindError::NotAControl { .. } => None,
        }
    }
}

/// Writes a path as one word of a shell command, for pasting.
fn for_shell(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain =
        |character: char| character.is_alphanumeric() || "/._-+,@%:=".contains(character);
    if path.chars().all(is_plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Whether to advise making it a store. Someone who ended up at the root of a file
/// system, or above all mounts, does not want a store there.
fn may_become_store(directory: &Path) -> bool {
    directory != Path::new("/") && !mounts::any_below(directory)
}

fn trust_hint(store: &Path, configuration: Option<&Path>) -> String {
    let once = "--trust uses it this once";
    match configuration {
        Some(file) => format!(
            "{once}, the line `trust {}` in {} always; who can write there then \
             decides what you see and run",
            store.display(),
            file.display()
        ),
        None => once.to_owned(),
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    #[error("'{path}' is in the view of a transaction; stores cannot be nested")]
    InView { path: PathBuf },
    #[error("'{path}' would not be a store to trust: {reason}")]
    Untrusted { path: PathBuf, reason: Distrust },
    /// It is already a store.
    #[error(transparent)]
    Existing(#[from] FindError),
    #[error("'{path}' is not a directory")]
    NotADirectory { path: PathBuf },
    #[error("'{path}' does not exist")]
    NotFound { path: PathBuf },
    #[error("'{path}' lies inside the store '{store}'; stores cannot be nested")]
    InsideStore { path: PathBuf, store: PathBuf },
    #[error("'{path}' holds the store '{store}'; stores cannot be nested")]
    HoldsStore { path: PathBuf, store: PathBuf },
    #[error("'{path}' is already a store, whose control directory is '{control}'")]
    OtherControl { path: PathBuf, control: PathBuf },
    #[error(
        "'{control}' is on another file system than '{path}', so files could not be renamed from one to the other"
    )]
    ControlElsewhere { path: PathBuf, control: PathBuf },
    #[error(
        "the control directory '{control}' lies inside '{path}', where transactions would change it"
    )]
    ControlInside { path: PathBuf, control: PathBuf },
    #[error("'{control}' cannot become a control directory: {reason}")]
    ControlUnfit { control: PathBuf, reason: String },
    #[error("'{path}' is on a file system that is mounted read-only")]
    ReadOnly { path: PathBuf },
    #[error("'{path}' is on a file system that cannot hold a store: {reason}")]
    Unsuitable { path: PathBuf, reason: String },
    #[error("no permission to make '{path}' a store")]
    NotPermitted { path: PathBuf },
    #[error("cannot make '{path}' a store: {operation}: {errno}", errno = reason(errno))]
    Io {
        path: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
    #[error("cannot make '{path}' a store: {message}")]
    Format { path: PathBuf, message: String },
}

impl Explain for InitError {
    fn exit_code(&self) -> ExitCode {
        match self {
            InitError::NotPermitted { .. } | InitError::Untrusted { .. } => ExitCode::NotPermitted,
            InitError::Existing(error) => error.exit_code(),
            InitError::Io { errno, .. } => match errno_exit_code(*errno) {
                ExitCode::NotFound => ExitCode::CannotCreate,
                code => code,
            },
            _ => ExitCode::CannotCreate,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            InitError::NotPermitted { path } => Some(format!(
                "run it as the owner of {} or as root",
                path.display()
            )),
            InitError::Unsuitable { .. } => Some(
                "make the store on ext4, xfs, btrfs or tmpfs; in a container, on a volume or a bind mount of such a file system"
                    .to_owned(),
            ),
            InitError::ReadOnly { .. } => Some("mount it read-write first".to_owned()),
            InitError::Untrusted { .. } => {
                Some("make it a store as the owner of that directory, or with --trust".to_owned())
            }
            InitError::Existing(error) => error.hint(),
            InitError::ControlElsewhere { path, .. } => Some(format!(
                "choose a control directory on the file system of {}",
                path.display()
            )),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("the store '{store}' is not in use: no service runs for it")]
    NotRunning { store: PathBuf },
    #[error("the store '{store}' belongs to {owner}, and no service runs for it")]
    NotPermittedToStart { store: PathBuf, owner: String },
    #[error("the service of the store '{store}' takes no connections from this user")]
    NotPermitted { store: PathBuf },
    #[error(
        "what listens for the store '{store}' runs as {}, who is neither root nor the owner",
        describe_user(*user)
    )]
    Impostor { store: PathBuf, user: u32 },
    #[error("the control directory of the store '{store}' has changed hands since it was found")]
    Replaced { store: PathBuf },
    #[error("the service of the store '{store}' has as many connections as it takes")]
    TooManyConnections { store: PathBuf },
    #[error("the service of the store '{store}' is of another version: {source}")]
    OtherVersion {
        store: PathBuf,
        source: HandshakeError,
    },
    #[error("cannot start the service with '{program}': {errno}", errno = reason(errno))]
    Start { program: PathBuf, errno: Errno },
    #[error("the service of the store '{store}' ended before it was ready")]
    StartedBadly { store: PathBuf },
    #[error("the service ended each time it was started for '{store}'")]
    KeepsEnding { store: PathBuf },
    /// Reported by the service that was started.
    #[error("{0}")]
    Failed(Failure),
    #[error("the service of the store '{store}' cannot be reached from within its view")]
    NotReachedWithin { store: PathBuf },
    #[error("cannot reach the service of the store '{store}': {operation}: {errno}", errno = reason(errno))]
    Io {
        store: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
}

impl Explain for ConnectError {
    fn exit_code(&self) -> ExitCode {
        match self {
            ConnectError::NotRunning { .. } | ConnectError::NotReachedWithin { .. } => {
                ExitCode::NotFound
            }
            ConnectError::NotPermittedToStart { .. }
            | ConnectError::NotPermitted { .. }
            | ConnectError::Replaced { .. }
            | ConnectError::Impostor { .. } => ExitCode::NotPermitted,
            ConnectError::TooManyConnections { .. } => ExitCode::CannotCreate,
            ConnectError::OtherVersion { .. } | ConnectError::Start { .. } => {
                ExitCode::Configuration
            }
            ConnectError::StartedBadly { .. } | ConnectError::KeepsEnding { .. } => {
                ExitCode::Internal
            }
            ConnectError::Failed(failure) => failure.code,
            ConnectError::Io { errno, .. } => errno_exit_code(*errno),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ConnectError::NotPermitted { store } => Some(format!(
                "a store of root's is open to those whom `atomdir -C {} config allow` lists",
                store.display()
            )),
            ConnectError::NotPermittedToStart { store, .. } => Some(format!(
                "ask its owner to run `atomdir -C {} service start`",
                store.display()
            )),
            ConnectError::OtherVersion { .. } => Some(
                "stop it with `atomdir service stop` of its own version, then try again".to_owned(),
            ),
            ConnectError::TooManyConnections { .. } => Some("try again later".to_owned()),
            ConnectError::StartedBadly { store } | ConnectError::KeepsEnding { store } => {
                Some(format!(
                    "`atomdir -C {} service run` shows why; service.log in the control directory may too",
                    store.display()
                ))
            }
            ConnectError::Failed(failure) => failure.hint.clone(),
            _ => None,
        }
    }
}

/// Why the service did not fulfil a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error("{0}")]
    Failed(Failure),
    #[error("the service of the store '{store}' has gone; its open transactions are aborted")]
    Disconnected { store: PathBuf },
    #[error("lost the service of the store '{store}': {errno}", errno = reason(errno))]
    Io { store: PathBuf, errno: Errno },
    #[error("the service of the store '{store}' sent something unexpected: {source}")]
    Malformed { store: PathBuf, source: FrameError },
    #[error("the service of the store '{store}' answered another question than was asked")]
    Unexpected { store: PathBuf },
    #[error("the request cannot be sent: {0}")]
    TooLong(FrameError),
    #[error(
        "the service of the store '{store}' sent an answer that takes more than {memory_max} bytes \
         of memory"
    )]
    TooMuch { store: PathBuf, memory_max: usize },
    #[error("the service of the store '{store}' gave a view that cannot be entered: {source}")]
    View {
        store: PathBuf,
        source: ViewRootError,
    },
}

impl RequestError {
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            RequestError::Failed(failure) => Some(failure.kind),
            _ => None,
        }
    }
}

impl Explain for RequestError {
    fn exit_code(&self) -> ExitCode {
        match self {
            RequestError::Failed(failure) => failure.code,
            RequestError::Disconnected { .. } | RequestError::Io { .. } => ExitCode::Io,
            RequestError::Malformed { .. }
            | RequestError::Unexpected { .. }
            | RequestError::TooMuch { .. } => ExitCode::Internal,
            RequestError::View { source, .. } => source.exit_code(),
            RequestError::TooLong(_) => ExitCode::Usage,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            RequestError::Failed(failure) => failure.hint.clone(),
            _ => None,
        }
    }
}

/// Why a commit failed, or a request for a lock or an undo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The transaction is still open.
    #[error("{failure}")]
    Conflict {
        conflicts: Vec<Conflict>,
        failure: Failure,
    },
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl CommitError {
    /// `parts` came before the failure.
    pub(crate) fn new(error: RequestError, parts: Parts) -> CommitError {
        match error {
            RequestError::Failed(failure) if failure.kind == FailureKind::Conflict => {
                CommitError::Conflict {
                    conflicts: parts.conflicts,
                    failure,
                }
            }
            error => error.into(),
        }
    }

    /// Whether others work in the transaction, or one is nested in it.
    pub fn is_in_use(&self) -> bool {
        self.is_of_kind(FailureKind::InUse)
    }

    /// Whether a program holds a lease on one of the transaction's files.
    pub fn is_leased(&self) -> bool {
        self.is_of_kind(FailureKind::Leased)
    }

    /// Whether the commit is in the log, and the transaction has ended. Recovery will
    /// show whether the commit landed.
    pub fn is_logged(&self) -> bool {
        self.is_of_kind(FailureKind::Logged)
    }

    fn is_of_kind(&self, kind: FailureKind) -> bool {
        matches!(self, CommitError::Request(error) if error.kind() == Some(kind))
    }
}

impl Explain for CommitError {
    fn exit_code(&self) -> ExitCode {
        match self {
            CommitError::Conflict { .. } => ExitCode::Conflict,
            CommitError::Request(error) => error.exit_code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            CommitError::Conflict { failure, .. } => failure.hint.clone(),
            CommitError::Request(error) => error.hint(),
        }
    }
}

fn errno_exit_code(errno: Errno) -> ExitCode {
    match errno {
        Errno::ACCESS | Errno::PERM => ExitCode::NotPermitted,
        Errno::NOENT | Errno::NOTDIR => ExitCode::NotFound,
        _ => ExitCode::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_hint_is_one_word_of_a_shell() {
        assert_eq!(for_shell(Path::new("/srv/a-b_c.d")), "/srv/a-b_c.d");
        assert_eq!(for_shell(Path::new("/a b")), "'/a b'");
        assert_eq!(for_shell(Path::new("/$(x)'y")), r"'/$(x)'\''y'");
    }
}
