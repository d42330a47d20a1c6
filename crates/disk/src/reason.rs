//! Error numbers as text for users.

use std::borrow::Borrow;
use std::io;

use rustix::io::Errno;

/// The system's text for an error, without its number: `No such file or directory`.
pub fn reason(errno: impl Borrow<Errno>) -> String {
    let mut text = errno.borrow().to_string();
    if let Some(number) = text.rfind(" (os error ") {
        text.truncate(number);
    }
    text
}

/// Like [`reason`], but also for errors that are not the system's.
pub fn io_reason(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(errno) => reason(errno),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_number() {
        assert_eq!(reason(Errno::NOENT), "No such file or directory");
        assert_eq!(io_reason(&Errno::NOENT.into()), "No such file or directory");
        assert_eq!(io_reason(&io::Error::other("odd")), "odd");
    }
}
