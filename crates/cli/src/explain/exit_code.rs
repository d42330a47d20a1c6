use atomdir::client::FailureKind;

/// The exit status for one class of failure, as sysexits.h numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    Usage = 64,
    /// No such store or transaction.
    NotFound = 66,
    Internal = 70,
    CannotCreate = 73,
    Io = 74,
    /// Trying again may succeed.
    Conflict = 75,
    NotPermitted = 77,
    Configuration = 78,
}

impl ExitCode {
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<FailureKind> for ExitCode {
    fn from(kind: FailureKind) -> ExitCode {
        match kind {
            FailureKind::BadRequest | FailureKind::Unsupported => ExitCode::Usage,
            FailureKind::NoStore
            | FailureKind::NoSuchTransaction
            | FailureKind::NoSuchCommit
            | FailureKind::NoSuchSavepoint => ExitCode::NotFound,
            FailureKind::Conflict
            | FailureKind::InUse
            | FailureKind::Nested
            | FailureKind::Frozen
            | FailureKind::InDoubt
            | FailureKind::Leased
            | FailureKind::Stalled => ExitCode::Conflict,
            FailureKind::NotPermitted => ExitCode::NotPermitted,
            FailureKind::NoViews | FailureKind::Misconfigured => ExitCode::Configuration,
            FailureKind::TooMany | FailureKind::Ending | FailureKind::AlreadyRunning => {
                ExitCode::CannotCreate
            }
            FailureKind::NoSpace
            | FailureKind::Logged
            | FailureKind::Poisoned
            | FailureKind::Io => ExitCode::Io,
            _ => ExitCode::Internal,
        }
    }
}
