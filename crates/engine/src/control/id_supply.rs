//! Transaction ids: no two transactions of a store ever have the same one, and people
//! type them, so they stay small.
//!
//! Ids are reserved in the store's header before they are used, several at a time, since
//! a header must be flushed. After a crash those that were reserved and not used are
//! lost. An orderly close gives them back. So the first reservations are small, and
//! they grow with the number of transactions.
//!
//! Invariant: every id that was used is at or below the high water of the header on disk.

use crate::ids::TransactionId;

/// How many ids are reserved first.
pub(crate) const RESERVE_MIN: u64 = 16;
const RESERVE_MAX: u64 = 1024;

pub(crate) struct IdSupply {
    last: u64,
    /// The high water of the header on disk, or a lower one.
    high_water: u64,
    /// How many to reserve next.
    reserve: u64,
}

impl IdSupply {
    /// The ids above `last`, up to `high_water`, are reserved and were never used.
    pub fn new(last: u64, high_water: u64) -> IdSupply {
        assert!(last <= high_water, "ids are reserved before they are used");
        IdSupply {
            last,
            high_water,
            reserve: RESERVE_MIN,
        }
    }

    /// `None`: more must be reserved first.
    pub fn take(&mut self) -> Option<TransactionId> {
        if self.is_empty() {
            return None;
        }
        self.last += 1;
        Some(TransactionId(self.last))
    }

    pub fn is_empty(&self) -> bool {
        self.last == self.high_water
    }

    /// How many more to reserve in the header.
    pub fn wanted(&self) -> u64 {
        self.reserve
    }

    /// The header on disk now reserves the ids up to this one.
    pub fn refill(&mut self, high_water: u64) {
        assert!(self.high_water <= high_water, "a high water never falls");
        self.high_water = high_water;
        self.reserve = RESERVE_MAX.min(self.reserve * 2);
    }

    /// Gives up the ids that were not used, and returns the last that was.
    pub fn give_back(&mut self) -> u64 {
        self.high_water = self.last;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_grow_and_returned_ids_are_reserved_again() {
        let mut supply = IdSupply::new(6, 7);
        assert_eq!(supply.take(), Some(TransactionId(7)));
        assert_eq!(supply.take(), None);
        assert_eq!(supply.wanted(), RESERVE_MIN);
        supply.refill(7 + RESERVE_MIN);
        assert_eq!(supply.wanted(), 2 * RESERVE_MIN);
        assert_eq!(supply.take(), Some(TransactionId(8)));
        assert_eq!(supply.give_back(), 8);
        assert_eq!(supply.take(), None);
        for _ in 0..20 {
            supply.refill(100);
        }
        assert_eq!(supply.wanted(), RESERVE_MAX);
    }
}
