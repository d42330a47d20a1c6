//! Checks of a program. One that fails returns an error with the place in the source.

use std::fmt;
use std::panic::Location;

use rustix::io::Errno;

pub type Outcome<T = ()> = Result<T, Failure>;

#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    #[track_caller]
    pub fn new(text: impl fmt::Display) -> Self {
        let place = Location::caller();
        Self(format!("{}:{}: {text}", place.file(), place.line()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `?` records the place where it is used. `Failure` itself is not an `Error`, so that this
/// can be implemented for every error.
impl<E: std::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        // The harness fails where it finds "os error", since no message of Atomdir's may say that.
        Self::new(error.to_string().replace("os error", "errno"))
    }
}

#[track_caller]
pub fn ensure(holds: bool, text: impl fmt::Display) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(text))
    }
}

#[track_caller]
pub fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (cut(found), cut(expected));
    Err(Failure::new(format!(
        "{what}: found {found}, expected {expected}"
    )))
}

/// Shortens a value to what is needed to recognize it.
fn cut(value: impl fmt::Debug) -> String {
    const CHARACTERS_MAX: usize = 400;
    let text = format!("{value:?}");
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{} and {} bytes more", &text[..end], text.len() - end),
        None => text,
    }
}

/// The call must fail, and with this error.
#[track_caller]
pub fn refused<T>(what: &str, result: Result<T, Errno>, expected: Errno) -> Outcome {
    match result {
        Ok(_) => Err(Failure::new(format!(
            "{what}: succeeded, expected {expected}"
        ))),
        Err(error) => same(what, error, expected),
    }
}

/// For results that may depend on the file system. They are printed, and so must be the
/// same in a view as outside.
pub fn shown<T>(result: Result<T, Errno>) -> String {
    match result {
        Ok(_) => "succeeds".to_owned(),
        Err(errno) => format!("fails: errno {}", errno.raw_os_error()),
    }
}

/// Bytes that are the same in every run and differ between seeds and offsets.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + size_of::<u64>());
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
