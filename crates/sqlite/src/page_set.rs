//! A set of pages of a file, one bit for each.

use std::ops::Range;

/// The unit of conflicts, in bytes.
pub(crate) const PAGE: usize = 4096;

#[derive(Default)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    /// Adds the pages that the bytes touch.
    pub(crate) fn insert(&mut self, bytes: Range<u64>) {
        let (first, end) = (bytes.start / PAGE as u64, bytes.end.div_ceil(PAGE as u64));
        for page in first..end {
            let word = usize::try_from(page / 64).unwrap_or(usize::MAX);
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= 1 << (page % 64);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let words = (0u64..).step_by(64).zip(&self.0);
        words.flat_map(|(first, word)| {
            let is_in = move |bit: &u64| word >> bit & 1 == 1;
            (0..64).filter(is_in).map(move |bit| first + bit)
        })
    }
}
