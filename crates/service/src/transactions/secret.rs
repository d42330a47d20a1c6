//! The secret by which a program proves that it runs in a transaction.

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

/// The secret of one transaction, too long to be guessed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    pub(crate) fn new() -> Result<Secret, Errno> {
        let mut bytes = [0; 16];
        // The kernel answers such a small request in full or not at all.
        retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        Ok(Secret(bytes))
    }

    /// Takes the same time for every guess of the right length.
    pub(crate) fn is(&self, guess: &[u8]) -> bool {
        let different = self
            .0
            .iter()
            .zip(guess)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        guess.len() == self.0.len() && different == 0
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}
