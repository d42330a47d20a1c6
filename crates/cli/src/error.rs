//! All errors of verbs, and the one place that turns them into a message, a hint and
//! an exit code.

mod lines;

pub use lines::conflict_line;

use crate::attempt::deviations;
use crate::enter::{self, EnterError};
use crate::explain::{ExitCode, Explain};
use crate::merging::{Next, NotMerged};
use crate::output::{json, quoted};
use crate::refused;
use atomdir::client::{
    CommitError, Conflict, Deviation, Failure, FailureKind, RequestError, SettingsError,
    TransactionStatus, io_reason, reason,
};
use atomdir::{ConnectError, FindError, InitError, TransactionId};
use lines::{not_merged_line, numbers, transaction_line};
use rustix::io::Errno;
use serde::Serialize;
use std::path::PathBuf;

const NO_SERVER_HINT: &str = "it is a program of its own: docs/agents.md says how to build it, and \
                              it belongs beside this one";
const INSIDE_HINT: &str = "run it outside; to reach the service from within, leave --sealed, --confine, \
                           --ask and --dry-run out of the command around it";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{message}")]
    Usage {
        message: String,
        hint: Option<String>,
    },
    #[error("already inside transaction {transaction}: its store cannot be reached from within")]
    Inside { transaction: String },
    #[error("cannot act in '{directory}': {errno}", errno = reason(errno))]
    Directory { directory: PathBuf, errno: Errno },
    #[error("no transaction of yours is open")]
    NoTransaction,
    #[error("several transactions of yours are open: {}", numbers(transactions))]
    SeveralTransactions {
        transactions: Vec<TransactionStatus>,
    },
    #[error("no open transaction {transaction}: the store's service does not run")]
    NotOpen { transaction: TransactionId },
    #[error(
        "transaction {transaction} is the only one you have open, but process {process} is using it"
    )]
    InUse {
        transaction: TransactionId,
        process: u32,
    },
    #[error("{message}")]
    Unpack { message: String },
    #[error("cannot run '{server}': {errno}", errno = reason(errno))]
    NoServer { server: PathBuf, errno: Errno },
    #[error("line {line} of '{}': {why}", file.display())]
    Profiles {
        file: PathBuf,
        line: usize,
        why: String,
    },
    #[error("'{program}' has no profile in the store '{}'", store.display())]
    NoProfile { program: String, store: PathBuf },
    #[error("cannot run '{}': {}", program.display(), io_reason(error))]
    NotStarted {
        program: PathBuf,
        error: std::io::Error,
    },
    #[error("cannot run make: {}", io_reason(_0))]
    Make(std::io::Error),
    #[error(
        "the recipe of '{}' was not run to its end, though make went on",
        quoted(targets)
    )]
    CutShort { targets: Vec<u8> },
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{source}")]
    Commit {
        transaction: TransactionId,
        source: CommitError,
        /// Whether the transaction is still open.
        open: bool,
    },
    /// In one of several stores.
    #[error("in the store '{}': {source}", store.display())]
    Elsewhere { store: PathBuf, source: Box<Error> },
    /// It was linked with others.
    #[error("{}", lines::partner_ended(*transaction, *has_committed))]
    PartnerEnded {
        transaction: TransactionId,
        has_committed: bool,
    },
    #[error(transparent)]
    Undo(CommitError),
    #[error("{source}")]
    NotUndone {
        source: CommitError,
        /// Whether all paths are listed that are in the way.
        lists_all: bool,
    },
    #[error("{0}")]
    NoCommit(String),
    /// The commit of an undo or of a restore, whose transaction was then aborted.
    #[error("{source}")]
    NotBroughtBack {
        transaction: TransactionId,
        source: CommitError,
    },
    #[error("there can be no native view: {reason}")]
    NoNativeView { reason: String },
    #[error(
        "transaction {transaction} is not committed, because its commit would leave the store \
         otherwise than the same command in a plain directory: {}",
        deviations::described(deviations)
    )]
    Deviations {
        transaction: TransactionId,
        deviations: Vec<Deviation>,
    },
    #[error(transparent)]
    Enter(#[from] EnterError),
    #[error("cannot read {} in the view: {errno}", quoted(path), errno = reason(errno))]
    View { path: Vec<u8>, errno: Errno },
    #[error("cannot change {} in the view: {errno}", quoted(path), errno = reason(errno))]
    Overwrite { path: Vec<u8>, errno: Errno },
    /// Some hunks were to land, and the view has only these.
    #[error("cannot write the hunks that stay to {} again: {errno}", quoted(path), errno = reason(errno))]
    TextNotRestored {
        path: Vec<u8>,
        /// Where the view has the whole text.
        saved: Vec<u8>,
        errno: Errno,
    },
    /// Nothing was committed, and the transaction is open.
    #[error("{count} merged line by line", count = counted_not(not_merged))]
    NotMerged {
        transaction: TransactionId,
        not_merged: Vec<NotMerged>,
    },
    #[error("cannot block signals: {}", io_reason(.0))]
    Signals(std::io::Error),
    #[error("cannot run the merge tool: {}", io_reason(.0))]
    Tool(std::io::Error),
    #[error("the store has {problems}")]
    Unsound { problems: String },
    #[error("cannot write '{path}': {errno}", errno = reason(errno))]
    Write { path: PathBuf, errno: Errno },
    #[error("cannot say who may lock '{path}': {errno}", errno = reason(errno))]
    AllowLock { path: PathBuf, errno: Errno },
    /// The reader of a pipe has closed it.
    #[error("cannot write to standard output: {}", io_reason(.0))]
    Output(std::io::Error),
    #[error("cannot read the answer from the terminal: {}", io_reason(.0))]
    Terminal(std::io::Error),
    #[error("cannot get random numbers: {}", reason(.0))]
    Random(Errno),
    #[error(transparent)]
    Service(#[from] atomdir_service::ServiceError),
}

/// An error as it is reported.
pub struct Explained {
    pub message: String,
    /// Further lines, each about one thing.
    pub lines: Vec<String>,
    pub hint: Option<String>,
    pub exit_code: u8,
    pub conflicts: Vec<Conflict>,
}

impl Error {
    pub fn usage(message: impl Into<String>) -> Error {
        Error::Usage {
            message: message.into(),
            hint: None,
        }
    }

    /// Whether the reader of our output has closed its pipe: then we report nothing.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The only function that decides the message for the user and the exit code.
    pub fn explain(&self) -> Explained {
        let (exit_code, hint) = match self {
            Error::Usage { hint, .. } => (ExitCode::Usage.code(), hint.clone()),
            Error::Inside { .. } => (ExitCode::Usage.code(), Some(INSIDE_HINT.to_owned())),
            Error::Directory { errno, .. }
            | Error::Write { errno, .. }
            | Error::AllowLock { errno, .. } => (of_errno(*errno), None),
            Error::NoTransaction => (
                ExitCode::NotFound.code(),
                Some(
                    "`atomdir begin` begins one; root sees those of others with `atomdir list`"
                        .into(),
                ),
            ),
            Error::SeveralTransactions { .. } => {
                (ExitCode::Usage.code(), Some("name the one you mean".into()))
            }
            Error::NotOpen { .. } => (
                ExitCode::NotFound.code(),
                Some("`atomdir begin` begins one that outlives the store's service".into()),
            ),
            Error::InUse { transaction, .. } => (
                ExitCode::Usage.code(),
                Some(format!(
                    "name it to abort it: `atomdir abort {transaction}`"
                )),
            ),
            Error::Make(_) | Error::NoServer { .. } | Error::NotStarted { .. } => {
                explain_not_started(self)
            }
            Error::Profiles { .. } => (
                ExitCode::Configuration.code(),
                Some("edit that line: docs/profiles.md has the form of the file".to_owned()),
            ),
            Error::NoProfile { .. } => (
                ExitCode::NotFound.code(),
                Some("`atomdir profile list` lists the programs that have one".to_owned()),
            ),
            Error::Unpack { .. } => (ExitCode::CannotCreate.code(), None),
            // Make's own exit code for a recipe that failed.
            Error::CutShort { .. } => (2, Some(cut_short_hint())),
            Error::Find(error) => explained(error),
            Error::Init(error) => explained(error),
            Error::Settings(error) => explained(error),
            Error::Connect(error) => explained(error),
            Error::Request(error) => explained(error),
            Error::Commit {
                transaction,
                source,
                open: true,
            } => explain_commit(*transaction, source),
            Error::Elsewhere { .. } | Error::PartnerEnded { .. } => explain_elsewhere(self),
            Error::Commit { source, .. } if source.is_logged() => explained(source),
            Error::Commit {
                transaction,
                source,
                open: false,
            } => (
                explained(source).0,
                Some(aborted_hint(*transaction, source)),
            ),
            Error::Undo(error) | Error::NotUndone { source: error, .. } => explained(error),
            Error::NoCommit(_) => (
                ExitCode::NotFound.code(),
                Some("`atomdir log` lists the commits".to_owned()),
            ),
            Error::NotBroughtBack {
                transaction,
                source,
            } => (
                explained(source).0,
                Some(not_brought_back_hint(*transaction)),
            ),
            Error::NoNativeView { .. } => (
                ExitCode::Configuration.code(),
                Some("`--view exact` works everywhere".to_owned()),
            ),
            Error::Deviations { transaction, .. } => deviations::explain(*transaction),
            Error::Enter(error) => enter::explain(error),
            Error::View { errno, .. } | Error::Overwrite { errno, .. } => (of_errno(*errno), None),
            Error::TextNotRestored { saved, errno, .. } => {
                let hint = format!("the whole text is in {} in the view", quoted(saved));
                (of_errno(*errno), Some(hint))
            }
            Error::Unsound { .. } => (
                ExitCode::Io.code(),
                Some("keep a copy of the store before you change anything".into()),
            ),
            Error::Output(_) | Error::Terminal(_) | Error::Tool(_) => (ExitCode::Io.code(), None),
            Error::NotMerged {
                transaction,
                not_merged,
            } => (
                ExitCode::Conflict.code(),
                Some(not_merged_hint(*transaction, not_merged)),
            ),
            Error::Random(_) | Error::Signals(_) => (ExitCode::Internal.code(), None),
            Error::Service(error) => explained(error),
        };
        let conflicts = self.conflicts();
        Explained {
            message: self.to_string(),
            lines: self.lines(conflicts),
            hint,
            exit_code,
            conflicts: conflicts.to_vec(),
        }
    }

    fn lines(&self, conflicts: &[Conflict]) -> Vec<String> {
        match self {
            Error::SeveralTransactions { transactions } => {
                transactions.iter().map(transaction_line).collect()
            }
            Error::NotMerged { not_merged, .. } => not_merged.iter().map(not_merged_line).collect(),
            Error::NotUndone { lists_all, .. } => refused::lines(conflicts, *lists_all),
            _ => conflicts.iter().map(conflict_line).collect(),
        }
    }

    fn conflicts(&self) -> &[Conflict] {
        match self {
            Error::Commit {
                source: CommitError::Conflict { conflicts, .. },
                ..
            }
            | Error::NotBroughtBack {
                source: CommitError::Conflict { conflicts, .. },
                ..
            }
            | Error::NotUndone {
                source: CommitError::Conflict { conflicts, .. },
                ..
            }
            | Error::Undo(CommitError::Conflict { conflicts, .. }) => conflicts,
            Error::Elsewhere { source, .. } => source.conflicts(),
            _ => &[],
        }
    }
}

fn explained(error: &impl Explain) -> (u8, Option<String>) {
    (error.exit_code().code(), error.hint())
}

fn counted_not(not_merged: &[NotMerged]) -> String {
    match not_merged.len() {
        1 => "nothing was committed: one conflict cannot be".to_owned(),
        count => format!("nothing was committed: {count} conflicts cannot be"),
    }
}

fn not_merged_hint(transaction: TransactionId, not_merged: &[NotMerged]) -> String {
    let of = |next: Next| {
        let numbers = not_merged.iter().filter(|one| one.next == next);
        let numbers: Vec<String> = numbers.map(|one| one.number.to_string()).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    };
    if of(Next::Abort).is_some() {
        return format!(
            "no side can be taken either: `atomdir abort {transaction}` drops its changes; then run \
             its programs again"
        );
    }
    let edited = of(Next::Edit).map(|numbers| {
        format!(
            "edit the marked files in the view, then take your side of them: --take-mine {numbers}"
        )
    });
    let by_hand = of(Next::ByHand).map(|numbers| {
        format!(
            "add --markers or --tool to merge {numbers} by hand, or take a side: --take-mine or \
             --take-theirs {numbers}"
        )
    });
    let either = of(Next::TakeSide)
        .map(|numbers| format!("take a side: --take-mine or --take-theirs {numbers}"));
    let theirs =
        of(Next::TakeTheirs).map(|numbers| format!("take their side: --take-theirs {numbers}"));
    let steps = [edited, by_hand, either, theirs];
    let steps: Vec<String> = steps.into_iter().flatten().collect();
    format!(
        "{}; with `atomdir commit {transaction} --merge`, and the other sides as before",
        steps.join("; ")
    )
}

fn explain_commit(transaction: TransactionId, error: &CommitError) -> (u8, Option<String>) {
    let (code, hint) = explained(error);
    let still_open = matches!(
        error,
        CommitError::Conflict { .. }
            | CommitError::Request(RequestError::Failed(Failure {
                kind: FailureKind::NoSpace
                    | FailureKind::Poisoned
                    | FailureKind::Stalled
                    | FailureKind::Io,
                ..
            }))
    );
    let is_full = matches!(
        error,
        CommitError::Request(RequestError::Failed(Failure {
            kind: FailureKind::NoSpace,
            ..
        }))
    );
    let what_to_do = || {
        if is_full {
            return format!(
                "transaction {transaction} is still open: free some space, then \
                 `atomdir commit {transaction}`, or `atomdir abort {transaction}`"
            );
        }
        format!(
            "transaction {transaction} is still open: `atomdir diff {transaction}` shows its \
             changes, `atomdir abort {transaction}` drops them"
        )
    };
    (code, hint.or_else(|| still_open.then(what_to_do)))
}

/// The hint after a commit that failed and whose transaction was then aborted.
fn aborted_hint(transaction: TransactionId, error: &CommitError) -> String {
    let again = match error {
        CommitError::Conflict { .. } => {
            "`atomdir run --retry N` runs a command again after a conflict, "
        }
        _ => "",
    };
    format!(
        "transaction {transaction} was aborted; {again}`--on-conflict keep` keeps the changes of a \
         commit that fails for you to look at"
    )
}

fn explain_elsewhere(error: &Error) -> (u8, Option<String>) {
    let Error::Elsewhere { source, .. } = error else {
        let hint = "`atomdir abort TX` drops the changes in the other stores";
        return (ExitCode::NotFound.code(), Some(hint.to_owned()));
    };
    let explained = source.explain();
    let are_aborted =
        matches!(&**source, Error::Commit { open: false, source, .. } if !source.is_logged());
    let hint = match are_aborted {
        true => Some(
            "the transactions of all stores were aborted; `atomdir run --retry N` runs a command again \
             after a conflict"
                .to_owned(),
        ),
        false => explained.hint,
    };
    (explained.exit_code, hint)
}

fn not_brought_back_hint(transaction: TransactionId) -> String {
    format!(
        "transaction {transaction} was aborted, and nothing has changed: try again, or with `--keep`, \
         which leaves it open for a commit of your own"
    )
}

fn explain_not_started(error: &Error) -> (u8, Option<String>) {
    match error {
        Error::NoServer { .. } => (ExitCode::Configuration.code(), Some(NO_SERVER_HINT.into())),
        Error::Make(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (127, Some("install GNU make".to_owned()))
        }
        // As a shell exits.
        Error::NotStarted { .. } => (126, None),
        _ => (ExitCode::Io.code(), None),
    }
}

fn cut_short_hint() -> String {
    "a line of it failed, and make ignored that, probably because of a `-` before the first line, \
     which make applies to all lines here; put another line before that one"
        .to_owned()
}

pub fn of_errno(errno: Errno) -> u8 {
    match errno {
        Errno::NOENT | Errno::NOTDIR => ExitCode::NotFound.code(),
        Errno::ACCESS | Errno::PERM => ExitCode::NotPermitted.code(),
        Errno::EXIST | Errno::ROFS => ExitCode::CannotCreate.code(),
        _ => ExitCode::Io.code(),
    }
}

#[derive(Serialize)]
pub struct ErrorJson<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    message: &'a str,
    hint: Option<&'a str>,
    exit_code: u8,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<json::ConflictLine<'a>>,
}

impl Explained {
    pub fn json(&self) -> ErrorJson<'_> {
        ErrorJson {
            error: ErrorFields {
                message: &self.message,
                hint: self.hint.as_deref(),
                exit_code: self.exit_code,
                conflicts: json::conflicts(&self.conflicts),
            },
        }
    }
}
