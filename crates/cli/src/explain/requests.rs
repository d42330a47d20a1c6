//! Errors of requests to the service, and of the service itself.

use atomdir::client::{CommitError, RequestError, ViewRootError};
use atomdir_service::ServiceError;

use super::{ExitCode, Explain, of_errno};

impl Explain for RequestError {
    fn exit_code(&self) -> ExitCode {
        match self {
            RequestError::Failed(failure) => failure.kind.into(),
            RequestError::Disconnected { .. } | RequestError::Io { .. } => ExitCode::Io,
            RequestError::View { source, .. } => of_view_root(source),
            RequestError::TooLong(_) => ExitCode::Usage,
            _ => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            RequestError::Failed(failure) => failure.hint.clone(),
            RequestError::View {
                source: ViewRootError::NotMounted,
                ..
            } => Some(
                "this process and the service are in different mount namespaces, as sandboxes, \
                 containers, `unshare -m` and PrivateMounts= make them; start the sandbox inside of \
                 the transaction (`atomdir run -- bwrap ...`); if the service was started in one, end \
                 its transactions (`atomdir list`), and the next command starts another service"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

impl Explain for CommitError {
    fn exit_code(&self) -> ExitCode {
        match self {
            CommitError::Conflict { .. } => ExitCode::Conflict,
            CommitError::Request(error) => error.exit_code(),
            _ => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            CommitError::Conflict { failure, .. } => failure.hint.clone(),
            CommitError::Request(error) => error.hint(),
            _ => None,
        }
    }
}

fn of_view_root(error: &ViewRootError) -> ExitCode {
    match error {
        ViewRootError::NotMounted => ExitCode::Configuration,
        ViewRootError::Io { errno, .. } => of_errno(*errno),
        _ => ExitCode::NotPermitted,
    }
}

impl Explain for ServiceError {
    fn exit_code(&self) -> ExitCode {
        match self {
            ServiceError::NotAStore(error) => error.exit_code(),
            error => error.to_failure().kind.into(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ServiceError::NotAStore(error) => error.hint(),
            error => error.to_failure().hint,
        }
    }
}
