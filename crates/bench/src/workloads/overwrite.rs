//! Overwrites files (Valor), compared with an ideal write-ahead logger: it writes its log, flushes it,
//! writes the data in place, and flushes that at the end.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use atomdir::client::{BeginOptions, Connection};

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Describe, Result};
use crate::load::pages::{self, PAGE};
use crate::measure::{Outcome, Side, Sides, in_turns};
use crate::report::{Row, Target, short};
use crate::workloads::ordering::in_runs;
use crate::workspace::Workspace;

const LOGGED: [Side; 3] = [Side::Plain, Side::Logger, Side::Exact];
const MIB: u64 = 1 << 20;

/// One part of the file that is written between two commits.
#[derive(Clone)]
enum Part {
    Range(Range<u64>),
    /// The offsets of scattered pages.
    Scattered(Vec<u64>),
}

impl Part {
    fn write(&self, file: &File, path: &Path) -> Result<()> {
        match self {
            Part::Range(range) => pages::write(file, path, range.clone(), b'n'),
            Part::Scattered(offsets) => pages::write_pages(file, path, offsets),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Part::Range(range) => range.end - range.start,
            Part::Scattered(offsets) => offsets.len() as u64 * PAGE,
        }
    }
}

/// Overwrites one large file. The paper's is 2 GiB, which is scale 16.
pub fn overwrite(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = bench.scaled(128 * MIB).next_multiple_of(PAGE);
    let count = (bytes / PAGE / 8).max(1);
    let whole = measure(bench, bytes, &LOGGED, &[Part::Range(0..bytes)])?;
    let fill = |path: &Path| pages::fill(&path.join("data"), bytes);
    let replaced = in_runs(bench, "replace", bytes, fill)?;
    let scattered = Part::Scattered(pages::scattered(bytes, count));
    let random = measure(bench, bytes, &LOGGED, &[scattered])?;
    let note = format!("{} MiB", bytes / MIB);
    Ok(vec![
        Row::new("overwrite a file", whole)
            .reference(Side::Logger)
            .target(Target::Ratio(0.7))
            .note(&note),
        Row::new("replace a file", replaced.whole)
            .note(&format!("{note}, by a new one renamed over it, and fsync")),
        Row::new("random 4 KiB writes, committed", random)
            .reference(Side::Logger)
            .target(Target::Ratio(1.2))
            .note(&format!("{count} in {note}")),
    ])
}

/// Overwrites files of several sizes in sequence.
pub fn sizes(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in [1, 4, 16, 64] {
        let bytes = bench.scaled(size * MIB).next_multiple_of(PAGE);
        let sides = [Side::Plain, Side::Exact];
        let sides = measure(bench, bytes, &sides, &[Part::Range(0..bytes)])?;
        let mebibytes = short(bytes as f64 / MIB as f64);
        let row = Row::new(&format!("serial overwrite, {size}x"), sides);
        rows.push(row.note(&format!("{mebibytes} MiB")));
    }
    Ok(rows)
}

const TRANSACTIONS: u64 = 32;
/// One page in so many is written at random.
const PARTS_OF_RANDOM: u64 = 8;

/// Many transactions of 1 to 256 pages each.
pub fn granularity(bench: &Bench) -> Result<Vec<Row>> {
    let transactions = bench.scaled(TRANSACTIONS);
    let note = format!("{transactions} of them");
    let mut rows = Vec::new();
    for count in [1, 4, 16, 64, 256] {
        let length = count * PAGE;
        let parts: Vec<Part> = (0..transactions)
            .map(|number| Part::Range(number * length..(number + 1) * length))
            .collect();
        let sides = measure(bench, transactions * length, &LOGGED, &parts)?;
        rows.push(
            Row::new(&format!("transactions of {count} pages"), sides)
                .reference(Side::Logger)
                .note(&note),
        );
    }
    let bytes = transactions * PARTS_OF_RANDOM * PAGE;
    let parts = single(pages::scattered(bytes, transactions));
    let sides = measure(bench, bytes, &LOGGED, &parts)?;
    rows.push(
        Row::new("transactions of a random page", sides)
            .reference(Side::Logger)
            .note(&note),
    );
    Ok(rows)
}

/// Up to `TRANSACTIONS` transactions of one page each, in an existing file of this length.
pub fn single_pages(workspace: &Workspace, bytes: u64) -> Result<Outcome> {
    let parts = single(pages::scattered(bytes, TRANSACTIONS.min(bytes / PAGE)));
    let mut connection = workspace.connect()?;
    let (sample, ()) = workspace.counted(|| transactions(&mut connection, &parts))?;
    Ok(sample.into())
}

fn single(pages: Vec<u64>) -> Vec<Part> {
    let part = |page| Part::Scattered(vec![page]);
    pages.into_iter().map(part).collect()
}

fn measure(bench: &Bench, bytes: u64, sides: &[Side], parts: &[Part]) -> Result<Sides> {
    let measured = in_turns(bench.rounds, sides, |side| {
        let fill = |path: &Path| pages::fill(&path.join("data"), bytes);
        let workspace = Workspace::fresh(bench, side, "overwrite", fill)?;
        let path = workspace.path.join("data");
        let sample = match side {
            Side::Logger => {
                let mut logger = Logger::new(&bench.directory.join("logger"), &path, bytes)?;
                workspace.counted(|| logger.run(parts))?.0
            }
            Side::Exact => {
                let mut connection = workspace.connect()?;
                workspace
                    .counted(|| transactions(&mut connection, parts))?
                    .0
            }
            _ => {
                let file = pages::open(&path)?;
                let plain = || {
                    parts.iter().try_for_each(|part| {
                        part.write(&file, &path)?;
                        file.sync_data().describe("flush", &path)
                    })
                };
                workspace.counted(plain)?.0
            }
        };
        Ok(sample.into())
    })?;
    compare::sides(bench, "overwrite", Degree::Contents, sides)?;
    Ok(measured.whole)
}

fn transactions(connection: &mut Connection, parts: &[Part]) -> Result<()> {
    parts.iter().try_for_each(|part| {
        let transaction = connection.begin(&BeginOptions::default())?;
        let path = transaction.view_path.join("data");
        part.write(&pages::open(&path)?, &path)?;
        connection.commit(transaction.id, &mut |_| {})?;
        Ok(())
    })
}

/// The ideal logger. The blocks of its log are allocated in advance.
struct Logger {
    log_path: PathBuf,
    log: File,
    path: PathBuf,
    file: File,
}

impl Logger {
    fn new(log_path: &Path, path: &Path, bytes: u64) -> Result<Logger> {
        pages::fill(log_path, bytes)?;
        pages::flush(log_path)?;
        Ok(Logger {
            log_path: log_path.to_owned(),
            log: pages::open(log_path)?,
            path: path.to_owned(),
            file: pages::open(path)?,
        })
    }

    fn run(&mut self, parts: &[Part]) -> Result<()> {
        let mut tail = 0;
        for part in parts {
            let end = tail + part.bytes();
            match part {
                Part::Range(_) => pages::write(&self.log, &self.log_path, tail..end, b'n')?,
                // One write for each page, as the pages are changed.
                Part::Scattered(_) => {
                    (tail..end).step_by(PAGE as usize).try_for_each(|offset| {
                        self.log
                            .write_all_at(&[b'n'; PAGE as usize], offset)
                            .describe("write", &self.log_path)
                    })?
                }
            }
            self.log.sync_data().describe("flush", &self.log_path)?;
            part.write(&self.file, &self.path)?;
            tail = end;
        }
        self.file.sync_data().describe("flush", &self.path)
    }
}
