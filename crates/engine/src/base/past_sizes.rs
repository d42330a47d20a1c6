//! How much space each commit in the past takes, so that anybody can learn what transactions hold of
//! it, without the commit lock and without reading the file.

use std::collections::VecDeque;

use atomdir_disk::Timestamp;
use atomdir_types::{EarlyReason, ForgottenEarly};

use crate::ids::Sequence;
use crate::options::HistoryLimits;

/// The space that the past takes, and its limits, as of the last checkpoint.
pub(crate) struct PastSizes {
    /// `None`: nothing is kept but for open transactions.
    pub limits: Option<HistoryLimits>,
    /// The bytes of the whole history, with the commits in the log, as of the last commit.
    pub all_bytes: u64,
    /// When commits were last forgotten early.
    pub early: Option<ForgottenEarly>,
    /// The sequence of the first commit. The past has no gaps.
    first: u64,
    commits: VecDeque<Size>,
    /// The `end` of the commit before the first one.
    start: u64,
}

struct Size {
    time: Timestamp,
    /// The bytes of this commit and of all that were added before it.
    end: u64,
}

impl PastSizes {
    pub fn new(limits: Option<HistoryLimits>) -> PastSizes {
        PastSizes {
            limits,
            all_bytes: 0,
            early: None,
            first: 0,
            commits: VecDeque::new(),
            start: 0,
        }
    }

    pub fn clear(&mut self) {
        *self = PastSizes {
            early: self.early,
            ..PastSizes::new(self.limits)
        };
    }

    pub fn add(&mut self, sequence: u64, time: Timestamp, bytes: u64) {
        if self.commits.is_empty() {
            self.first = sequence;
        }
        assert!(
            sequence == self.first + self.commits.len() as u64,
            "the past has a gap"
        );
        let end = self.end() + bytes;
        self.commits.push_back(Size { time, end });
    }

    /// Drops the commits before this one; `None`: all.
    pub fn forget_before(&mut self, first: Option<u64>) {
        let Some(first) = first else {
            return self.clear();
        };
        let count = first.saturating_sub(self.first);
        let count =
            usize::try_from(count).map_or(usize::MAX, |count| count.min(self.commits.len()));
        if let Some(last) = self.commits.drain(..count).next_back() {
            self.start = last.end;
        }
        self.first = first;
    }

    /// Why commits were forgotten early since then, or will be at the next checkpoint.
    pub fn forgets_early(&self, since: Timestamp) -> Option<EarlyReason> {
        let early = self.early.filter(|early| early.time >= since);
        let bytes_max = self.limits.map(|limits| limits.bytes_max);
        let is_large = bytes_max.is_some_and(|bytes_max| self.all_bytes > bytes_max);
        early
            .map(|early| early.why)
            .or(is_large.then_some(EarlyReason::Space))
    }

    /// The bytes of one commit; 0 if it is not in the past.
    pub fn of(&self, sequence: u64) -> u64 {
        let place = sequence
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|place| *place < self.commits.len()) else {
            return 0;
        };
        self.end_of(place + 1) - self.end_of(place)
    }

    /// When the oldest commit was made of those for which this is true.
    pub fn oldest(&self, mut is_wanted: impl FnMut(u64) -> bool) -> Option<(u64, Timestamp)> {
        let mut commits = (self.first..).zip(&self.commits);
        let found = commits.find(|(sequence, _)| is_wanted(*sequence));
        found.map(|(sequence, one)| (sequence, one.time))
    }

    /// The bytes of all commits.
    pub fn total(&self) -> u64 {
        self.end() - self.start
    }

    /// The bytes of the commits after `after` that are older than this, or too many if there shall
    /// be no more than `bytes_max`.
    pub fn beyond(&self, after: Sequence, older_than: Timestamp, bytes_max: u64) -> u64 {
        let old = self.commits.partition_point(|one| one.time < older_than);
        // A commit is too many if what there is without those before it is too much.
        let is_too_much = |from: u64| self.end() - from > bytes_max;
        let others = self.commits.partition_point(|one| is_too_much(one.end));
        let many = others + usize::from(is_too_much(self.start));
        let held = (after.0 + 1).saturating_sub(self.first);
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        let beyond = self.end_of(old.max(many));
        beyond.saturating_sub(self.end_of(held))
    }

    /// The `end` of the last of so many commits.
    fn end_of(&self, count: usize) -> u64 {
        match count.checked_sub(1) {
            Some(last) => self.commits.get(last).map_or(self.end(), |one| one.end),
            None => self.start,
        }
    }

    fn end(&self) -> u64 {
        self.commits.back().map_or(self.start, |last| last.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: 0,
        }
    }

    /// Commits 5 to 8, of 10, 20, 30 and 40 bytes, at the moments 500, 600, 700 and 800.
    fn sizes() -> PastSizes {
        let mut sizes = PastSizes::new(None);
        for number in 1..=4 {
            sizes.add(4 + number, at(400 + 100 * number as i64), 10 * number);
        }
        sizes
    }

    fn beyond(after: u64, older_than: i64, bytes_max: u64) -> u64 {
        sizes().beyond(Sequence(after), at(older_than), bytes_max)
    }

    #[test]
    fn a_later_first_commit_leaves_less_beyond_the_limits() {
        let held: Vec<u64> = (3..=9).map(|after| beyond(after, 0, 0)).collect();
        assert_eq!(held, [100, 100, 90, 70, 40, 0, 0]);
        let held: Vec<u64> = (3..=9).map(|after| beyond(after, 650, 1000)).collect();
        assert_eq!(held, [30, 30, 20, 0, 0, 0, 0]);
    }

    #[test]
    fn commits_are_beyond_the_limits_until_the_rest_is_within_them() {
        for (bytes_max, wanted) in [(100, 0), (99, 10), (90, 10), (89, 30), (40, 60), (39, 100)] {
            assert_eq!(beyond(4, 0, bytes_max), wanted, "{bytes_max} bytes");
        }
        for (older_than, wanted) in [(500, 0), (501, 10), (650, 30), (900, 100)] {
            assert_eq!(beyond(4, older_than, 1000), wanted, "{older_than}");
        }
        assert_eq!((beyond(4, 501, 40), beyond(4, 701, 90)), (60, 60));
    }

    #[test]
    fn forgotten_commits_are_not_counted() {
        let mut sizes = sizes();
        let of: Vec<u64> = (4..=9).map(|sequence| sizes.of(sequence)).collect();
        assert_eq!(of, [0, 10, 20, 30, 40, 0]);
        let beyond = |sizes: &PastSizes, after| sizes.beyond(Sequence(after), at(0), 0);
        sizes.forget_before(Some(7));
        assert_eq!((beyond(&sizes, 4), beyond(&sizes, 7)), (70, 40));
        assert_eq!(sizes.total(), 70);
        sizes.add(9, at(0), 1);
        assert_eq!((beyond(&sizes, 4), beyond(&sizes, 8)), (71, 1));
        sizes.forget_before(None);
        assert_eq!((beyond(&sizes, 0), sizes.total()), (0, 0));
        sizes.add(20, at(0), 3);
        assert_eq!((beyond(&sizes, 4), beyond(&sizes, 20)), (3, 0));
    }
}
