//! A fast hash that is the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Hasher(u64);

impl Hasher {
    pub fn number(&mut self, number: u64) {
        self.0 = mix(self.0, number);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        let (blocks, words) = words.as_chunks::<4>();
        // Four sums, because a step of one need not wait for the last step of another.
        let mut sums = [0; 4];
        for block in blocks {
            for (sum, word) in sums.iter_mut().zip(block) {
                *sum = mix(*sum, u64::from_le_bytes(*word));
            }
        }
        if !blocks.is_empty() {
            sums.into_iter().for_each(|sum| self.number(sum));
        }
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.number(u64::from(*byte));
        }
    }

    pub fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^ hash >> 27
    }
}

fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// A hash that is computed at most once for each value. Whoever changes the value forgets it, and a
/// copy does not have it, since copies are made to be changed.
#[derive(Debug, Default)]
pub(crate) struct Known(AtomicU64);

impl Known {
    pub fn or_computed(&self, compute: impl FnOnce() -> u64) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => {
                let hash = compute();
                self.0.store(hash, Ordering::Relaxed);
                hash
            }
            known => known,
        }
    }
}

impl Clone for Known {
    fn clone(&self) -> Known {
        Known::default()
    }
}
