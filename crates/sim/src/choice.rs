//! Which of the pending effects a crash keeps: all choices up to a bound, and
//! beyond it those that most often tell, and random ones.

use crate::effect::{Keep, Volatile, What};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Every choice is tried where so many effects are pending.
    pub exhaustive: usize,
    /// Beyond that, so many random ones; if none, only nothing and all is kept.
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

/// The choices for what is pending now, always in the same order.
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
            // From nearly nothing to nearly all.
            let chance = 1 + random.below(15);
            kept.push((0..count).map(|_| random.below(16) < chance).collect());
        }
    }
    let mut chosen: Vec<Vec<Keep>> = Vec::new();
    for (number, mut kept) in kept.into_iter().enumerate() {
        // Beyond the bound, a choice that is not allowed is mended by keeping
        // more or by keeping less.
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

/// Each write of several sectors is torn in a few ways, beside all and beside
/// nothing of the rest.
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
