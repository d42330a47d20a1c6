//! Error numbers as text for users.

use std::borrow::Borrow;

use rustix::io::Errno;

/// The system's text for an error, without its number: `No such file or directory`.
pub fn reason(errno: impl Borrow<Errno>) -> String {
    let mut text = errno.borrow().to_string();
    if let Some(number) = text.rfind(" (os error ") {
        text.truncate(number);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_number() {
        assert_eq!(reason(Errno::NOENT), "No such file or directory");
    }
}
