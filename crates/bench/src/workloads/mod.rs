//! What is measured, each in a file of its own.

mod build;
mod empty;
mod search;
mod unpack;

use std::path::PathBuf;

use crate::corpus::Corpus;
use crate::error::Result;
use crate::report::Line;

pub struct Bench {
    pub program: PathBuf,
    /// A directory on the file system that is measured, for this run alone.
    pub directory: PathBuf,
    /// What is kept from one run to the next.
    pub cache: PathBuf,
    pub rounds: usize,
    pub corpus: Corpus,
}

type Workload = fn(&Bench) -> Result<Vec<Line>>;

pub const ALL: &[(&str, Workload)] = &[
    ("empty", empty::measure),
    ("unpack", unpack::measure),
    ("search", search::measure),
    ("build", build::measure),
];
