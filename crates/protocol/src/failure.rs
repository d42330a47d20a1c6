use serde::{Deserialize, Serialize};

/// Why a request failed, for programs that treat failures differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// The request cannot be decoded or makes no sense.
    BadRequest,
    /// The service cannot do what was asked for.
    Unsupported,
    NoSuchTransaction,
    NoSuchCommit,
    NoSuchSavepoint,
    /// Others work in the transaction, or one is nested in it. Requests that can wait
    /// can wait for the end of that. For `Stop`: transactions are open.
    InUse,
    /// Nobody works in the transaction that is nested in it, so nothing may ever end
    /// that one.
    Nested,
    /// The transaction is read-only, because its changes were listed for the commit.
    Frozen,
    /// The transaction has voted for a commit that another store decides.
    InDoubt,
    /// A program that knows nothing of the transaction holds a lease on one of its files.
    Leased,
    /// Someone else changed what the transaction wrote or, when serializable, read.
    Conflict,
    NotPermitted,
    /// Views cannot be mounted here.
    NoViews,
    /// Too many connections or transactions.
    TooMany,
    NoSpace,
    /// The commit's record is in the log and the transaction has ended. Recovery will show
    /// whether the commit landed.
    Logged,
    /// A flush or an apply failed earlier; the store must be recovered first.
    Poisoned,
    Io,
    /// An earlier commit cannot be applied yet, or is set aside; the service tries again by itself.
    Stalled,
    /// The service is ending and accepts no more requests.
    Ending,
    AlreadyRunning,
    /// There is no store, or it is damaged, or not one of this machine's.
    NoStore,
    /// The store or the machine has to be set up in another way first.
    Misconfigured,
    Internal,
}

/// A failure as the service reports it, ready to be printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    /// What happened, and to which object.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}
