//! Random numbers that a printed seed reproduces.

use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Takes `ATOMDIR_SEED` if it is set, or else a new seed. It prints the command that
    /// replays the test; the test runner shows that line when the test fails.
    pub fn for_test(test: &str) -> Self {
        let seed = match std::env::var("ATOMDIR_SEED") {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("ATOMDIR_SEED is {text:?}; it must be a whole number")),
            Err(_) => Self::fresh_seed(),
        };
        // Cargo sets it to the package under test.
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or("atomdir-e2e".to_owned());
        println!("seed {seed}; replay: ATOMDIR_SEED={seed} cargo test -p {package} {test}");
        Self::from_seed(seed)
    }

    pub fn from_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    fn fresh_seed() -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::from(since.subsec_nanos()) ^ (u64::from(std::process::id()) << 32) ^ since.as_secs()
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    /// generators, 2014).
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, but not including, `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing lies below zero");
        (self.number() % bound as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}
