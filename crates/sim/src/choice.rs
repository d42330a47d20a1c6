//! Chooses which pending effects a crash keeps. Up to a bound these are all choices; beyond it,
//! random ones and those that find most errors.

use crate::effect::{Keep, Volatile, What};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// With at most this many pending effects, every choice is tried.
    pub exhaustive: usize,
    /// Beyond that, this many random choices; if 0, only nothing and everything
    /// is kept.
    pub random: usize,
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound.max(1) as u64) as usize
    }
}

/// Returns the choices for the effects that are pending now, always in the same
/// order.
pub(crate) fn choices(disk: &Volatile, bounds: Bounds, seed: u64) -> Vec<Vec<Keep>> {
    let count = disk.pending.len();
    let mut kept = Vec::new();
    if count <= bounds.exhaustive {
        for bits in 0..1_u64 << count {
            kept.push((0..count).map(|index| bits >> index & 1 == 1).collect());
        }
    } else if bounds.random == 0 {
        kept.extend([vec![false; count], vec![true; count]]);
    } else {
        kept.push(vec![false; count]);
        for index in 0..count {
            kept.push((0..count).map(|other| other <= index).collect());
            kept.push((0..count).map(|other| other == index).collect());
            kept.push((0..count).map(|other| other != index).collect());
        }
        let mut random = Random(seed);
        for _ in 0..bounds.random {
            // Each effect is kept with this chance in 16.
            let chance = 1 + random.below(15);
            kept.push((0..count).map(|_| random.below(16) < chance).collect());
        }
    }
    let mut chosen: Vec<Vec<Keep>> = Vec::new();
    for (number, mut kept) in kept.into_iter().enumerate() {
        // Beyond the bound, a choice that the contract forbids is corrected by
        // keeping more or by keeping less.
        let before = kept.clone();
        if number % 2 == 0 {
            disk.add_dependencies(&mut kept);
        } else {
            disk.drop_dependents(&mut kept);
        }
        if count <= bounds.exhaustive && kept != before {
            continue;
        }
        chosen.push(kept.into_iter().map(Keep::of).collect());
    }
    add_torn(disk, &mut chosen, seed);
    chosen
}

/// Tears each write of several sectors in a few ways, once with all other
/// effects and once with none of them.
fn add_torn(disk: &Volatile, chosen: &mut Vec<Vec<Keep>>, seed: u64) {
    let mut random = Random(!seed);
    for (index, effect) in disk.pending.iter().enumerate() {
        let What::Data(_, sectors) = &effect.what else {
            continue;
        };
        if sectors.len() < 2 {
            continue;
        }
        for mask in [1, !1, random.number()] {
            for rest in [false, true] {
                let mut kept = vec![rest; disk.pending.len()];
                disk.add_dependencies(&mut kept);
                let mut keep: Vec<Keep> = kept.into_iter().map(Keep::of).collect();
                keep[index] = Keep::Torn(mask);
                chosen.push(keep);
            }
        }
    }
}

impl Keep {
    fn of(kept: bool) -> Keep {
        if kept { Keep::All } else { Keep::Nothing }
    }
}
