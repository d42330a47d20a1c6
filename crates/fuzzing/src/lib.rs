//! The fuzz targets: functions that take any bytes and panic if a promise is broken.
//!
//! `fuzz/` at the workspace's root drives them with libFuzzer; the tests of this
//! crate drive the same functions with mutations of real logs and messages, by
//! a seed, on any compiler.
//!
//! Modules
//! - `format`, `protocol`, `recovery`: the targets: control files; messages; recovery from any log
//! - `corpus`, `messages`: the first inputs
//! - `mutate`: changes bytes as libFuzzer does
//! - `bin`: writes the first inputs for `fuzz/`

mod corpus;
mod format;
mod messages;
mod mutate;
mod protocol;
mod recovery;

pub use corpus::{Corpus, corpus};
pub use format::{header, log, record};
pub use messages::requests;
pub use mutate::mutate;
pub use protocol::message;
pub use recovery::recovery;

/// A target. It must return for any bytes.
pub type Target = fn(&[u8]);

/// Each target by its name in `fuzz/fuzz_targets`.
pub const TARGETS: &[(&str, Target)] = &[
    ("header", header),
    ("log", log),
    ("record", record),
    ("message", message),
    ("recovery", recovery),
];
