//! Errors, with the exit codes of sysexits(3) that mail servers understand.

use std::fmt;

pub const USAGE: u8 = 64;

/// Why a message was not delivered. Mail servers return a message to its sender after every
/// nonzero exit code except 75 (Exim: except 73 and 75).
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// There is no such user.
    NoUser(String),
    /// The caller may not deliver to this user.
    NotPermitted(String),
    /// The mail server should try again later.
    TryAgain(String),
}

impl Failure {
    pub fn again(what: &str, error: impl fmt::Display) -> Failure {
        Failure::TryAgain(format!("{what}: {error}"))
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => USAGE,
            Failure::NoUser(_) => 67,
            Failure::TryAgain(_) => 75,
            Failure::NotPermitted(_) => 77,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Usage(text)
        | Failure::NoUser(text)
        | Failure::NotPermitted(text)
        | Failure::TryAgain(text)) = self;
        formatter.write_str(text)
    }
}
