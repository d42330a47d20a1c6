//! What the command adds to an error's message: the status with which it exits, and advice.

mod exit_code;
mod requests;
mod settings;
mod stores;

pub use exit_code::ExitCode;

use rustix::io::Errno;

pub trait Explain: std::error::Error {
    fn exit_code(&self) -> ExitCode;
    /// Advice to the user, if the message holds none.
    fn hint(&self) -> Option<String>;
}

fn of_errno(errno: Errno) -> ExitCode {
    match errno {
        Errno::ACCESS | Errno::PERM => ExitCode::NotPermitted,
        Errno::NOENT | Errno::NOTDIR => ExitCode::NotFound,
        _ => ExitCode::Io,
    }
}
