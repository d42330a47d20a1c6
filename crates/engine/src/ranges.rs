//! A set of `u64` positions kept as disjoint, non-touching half-open ranges.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Start to end. Invariant: start < end, and each end < the next start.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            start = start.min(from);
            end = end.max(to);
            self.ranges.remove(&from);
        }
        assert!(start < end, "a range of the set is empty");
        self.ranges.insert(start, end);
    }

    /// Removes everything at or after `from`.
    pub fn truncate(&mut self, from: u64) {
        self.ranges.split_off(&from);
        if let Some((start, end)) = self.ranges.iter_mut().next_back() {
            *end = (*end).min(from);
            assert!(start < end, "a range of the set is empty");
        }
    }

    pub fn contains(&self, position: u64) -> bool {
        self.run_at(position).0
    }

    /// Whether `position` is in the set, and the next position where that
    /// changes.
    pub fn run_at(&self, position: u64) -> (bool, u64) {
        if let Some((_, &end)) = self.ranges.range(..=position).next_back()
            && position < end
        {
            return (true, end);
        }
        let next = self
            .ranges
            .range(position..)
            .next()
            .map_or(u64::MAX, |(&start, _)| start);
        (false, next)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&start, &end)| (start, end))
    }

    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let (inside, until) = self.run_at(start);
        start < end && (inside || until < end)
    }

    /// How many positions are in the set.
    pub fn total(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Compares it with a plain set of numbers, over all short sequences of
    /// operations that a small generator makes.
    #[test]
    fn behaves_as_a_set_of_numbers() {
        let mut seed = 1u64;
        let mut next = |bound: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        for _ in 0..2000 {
            let mut ranges = RangeSet::default();
            let mut model = BTreeSet::new();
            for _ in 0..12 {
                let start = next(20);
                if next(4) == 0 {
                    ranges.truncate(start);
                    model.retain(|&position| position < start);
                } else {
                    let end = start + next(6);
                    ranges.insert(start, end);
                    model.extend(start..end);
                }
                let parts: Vec<_> = ranges.iter().collect();
                assert!(
                    parts.windows(2).all(|pair| pair[0].1 < pair[1].0),
                    "{parts:?}"
                );
                for position in 0..30 {
                    assert_eq!(ranges.contains(position), model.contains(&position));
                    let (inside, until) = ranges.run_at(position);
                    assert!((position..until.min(30)).all(|at| model.contains(&at) == inside));
                    let overlaps = (position..position + 3).any(|at| model.contains(&at));
                    assert_eq!(ranges.overlaps(position, position + 3), overlaps);
                }
                assert_eq!(ranges.total(), model.len() as u64);
            }
        }
    }
}
