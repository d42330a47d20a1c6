//! Each target on mutations of real logs and messages, on any compiler.
//! `ATOMDIR_SEED` replays; a failure prints the bytes that broke it.

#![cfg(test)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use atomdir_fuzzing::{TARGETS, Target, corpus};
use atomdir_testing::{Random, pick};

/// One to eight changes of the kinds that libFuzzer makes.
fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.choose(corpus).clone();
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.number() as u8),
            2 => {
                let other = random.choose(corpus);
                let from = random.below(other.len() + 1);
                let piece = other[from..].to_vec();
                bytes.splice(at.., piece);
            }
            3 => {
                let end = at + random.below(bytes.len() - at + 1);
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let end = at + random.below((bytes.len() - at).min(64) + 1);
                bytes.drain(at..end);
            }
            5 => {
                let number = *random.choose(&[0, 1, 0x7f, 0x80, 0xff, u64::MAX, 1 << 63]);
                let number = number.to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

fn drive(name: &str, target: Target, corpus: &[Vec<u8>], count: usize, random: &mut Random) {
    assert!(!corpus.is_empty(), "{name} has nothing to begin from");
    corpus.iter().for_each(|bytes| target(bytes));
    for _ in 0..count {
        let bytes = mutate(random, corpus);
        if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
            panic!("{name} is broken by {bytes:?}");
        }
    }
}

#[test]
fn no_bytes_break_what_reads_them() {
    let corpus = corpus();
    for (name, target) in TARGETS {
        let mut random = Random::for_test("no_bytes_break_what_reads_them");
        let count = match *name {
            "recovery" => pick(1_000, 100_000),
            _ => pick(20_000, 2_000_000),
        };
        drive(name, *target, corpus.of(name), count, &mut random);
        println!("{name}: {count} mutations");
    }
}
