//! How long to wait before trying again after a conflict.

use crate::error::Error;
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(1280);

/// Exponential backoff with full jitter: each wait is random, from zero to a
/// bound that doubles. So transactions that conflicted do not meet again
/// (Brooker, "Exponential Backoff And Jitter").
pub struct Backoff {
    tries_left: u32,
    bound: Duration,
}

impl Backoff {
    pub fn new(retries: u32) -> Backoff {
        Backoff {
            tries_left: retries,
            bound: FIRST,
        }
    }

    /// Returns `None` after the last try.
    pub fn next(&mut self) -> Result<Option<Duration>, Error> {
        if self.tries_left == 0 {
            return Ok(None);
        }
        self.tries_left -= 1;
        let bound = self.bound;
        self.bound = LONGEST.min(bound * 2);
        Ok(Some(bound.mul_f64(random_fraction()?)))
    }

    pub fn tries_left(&self) -> u32 {
        self.tries_left
    }
}

/// Returns a number from 0 to 1, without 1 itself.
fn random_fraction() -> Result<f64, Error> {
    let mut bytes = [0; 4];
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())).map_err(Error::Random)?;
    Ok(f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_below_a_bound_that_doubles_and_tries_run_out() {
        let mut backoff = Backoff::new(20);
        for number in 0..20 {
            let bound = LONGEST.min(FIRST * 2u32.pow(number.min(16)));
            assert!(backoff.next().unwrap().unwrap() < bound, "try {number}");
        }
        assert_eq!(backoff.next().unwrap(), None);
    }
}
