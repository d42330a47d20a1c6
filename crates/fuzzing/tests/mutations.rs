//! Runs each target on mutations of real logs and messages, on any compiler. `ATOMDIR_SEED` replays
//! a run; a failure prints the bytes that caused it.

#![cfg(test)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atomdir_fuzzing::{TARGETS, Target, corpus, mutate, requests};
use atomdir_protocol::{Request, TransactionId, frame};
use atomdir_testing::{Random, pick};

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
fn every_decoder_survives_arbitrary_bytes() {
    let corpus = corpus();
    for (name, target) in TARGETS {
        let mut random = Random::for_test("every_decoder_survives_arbitrary_bytes");
        let count = match *name {
            "recovery" => pick(1_000, 100_000),
            _ => pick(20_000, 2_000_000),
        };
        drive(name, *target, corpus.of(name), count, &mut random);
        println!("{name}: {count} mutations");
    }
}

#[test]
fn corpus_has_each_kind_of_request() {
    // Postcard encodes the kind first, in one byte while there are few kinds.
    let kinds: BTreeSet<u8> = requests(TransactionId(5))
        .iter()
        .map(|one| one[0])
        .collect();
    assert!(kinds.iter().copied().eq(0..kinds.len() as u8), "{kinds:?}");
    let mut next = vec![0; 64];
    next[0] = kinds.len() as u8;
    let decoded = frame::decode::<Request>(&next);
    assert!(
        matches!(decoded, Err(frame::FrameError::Malformed(_))),
        "{decoded:?}"
    );
}
