//! Small transactions by the library, compared with what programs do without it: renames, databases,
//! another library; and with the cheapest way to make the same bytes durable, which is to append them
//! to a file and flush it once.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::bench::{Bench, sync};
use crate::error::{Describe, Error, Result};
use crate::load::{self, pages::PAGE};
use crate::measure::{Outcome, Side, in_turns, timed};
use crate::programs::{Store, clear, make_directory};
use crate::report::{Figure, Row};
use crate::small::{self, Work, thread_directory};

const NAME: &str = "library";
const SIDES: [Side; 8] = [
    Side::Append,
    Side::Plain,
    Side::Embedded,
    Side::Service,
    Side::Sqlite,
    Side::Lmdb,
    Side::BerkeleyDb,
    Side::Fstx,
];
/// The sides that can be measured with slower flushes.
const DELAYED_SIDES: [Side; 3] = [Side::Append, Side::Plain, Side::Embedded];
const DELAY_US: u64 = 1000;
const SCALE_OF_ALL_MIN: f64 = 0.1;
/// About how many files each thread writes.
const FILES: u64 = 600;

/// One row of the table.
#[derive(Clone, Copy)]
struct Cell {
    files: u64,
    bytes: u64,
    is_new: bool,
    is_lazy: bool,
    threads: u64,
    processes: u64,
    delay_us: u64,
}

const ONE: Cell = Cell {
    files: 1,
    bytes: PAGE,
    is_new: true,
    is_lazy: false,
    threads: 1,
    processes: 1,
    delay_us: 0,
};

fn cells(scale: f64) -> Vec<Cell> {
    // A very small run only tests that everything works, and needs one cell of each kind.
    if scale < SCALE_OF_ALL_MIN {
        let processes = Cell {
            processes: 2,
            is_lazy: true,
            ..ONE
        };
        let delayed = Cell {
            threads: 2,
            is_new: false,
            delay_us: DELAY_US,
            ..ONE
        };
        return vec![ONE, processes, delayed];
    }
    let mut cells = Vec::new();
    for is_new in [true, false] {
        let sizes = [PAGE / 4, PAGE, 4 * PAGE];
        let several = [1, 4, 10, 64].map(|files| sizes.map(|bytes| (files, bytes)));
        // Less than a page makes a difference only with few files.
        let kept = several.into_iter().flatten();
        let kept = kept.filter(|(files, bytes)| *bytes >= PAGE || [1, 10].contains(files));
        cells.extend(kept.map(|(files, bytes)| Cell {
            files,
            bytes,
            is_new,
            ..ONE
        }));
    }
    for is_new in [true, false] {
        cells.extend([1, 10].map(|files| Cell {
            files,
            is_new,
            is_lazy: true,
            ..ONE
        }));
    }
    for several in [2, 4, 8] {
        for files in [1, 10] {
            let threads = Cell {
                files,
                threads: several,
                ..ONE
            };
            let processes = Cell {
                files,
                processes: several,
                ..ONE
            };
            cells.extend([threads, processes]);
        }
        cells.push(Cell {
            files: 10,
            is_new: false,
            threads: several,
            ..ONE
        });
    }
    cells.push(Cell {
        is_lazy: true,
        threads: 8,
        ..ONE
    });
    for threads in [1, 2, 4, 8] {
        cells.extend([1, 10].map(|files| Cell {
            files,
            threads,
            delay_us: DELAY_US,
            ..ONE
        }));
    }
    cells
}

impl Cell {
    fn commits(self, bench: &Bench) -> u64 {
        let pages = self.bytes.div_ceil(PAGE);
        let files = self.files * pages * (1 + self.delay_us / 250);
        bench.scaled((FILES / files).max(20))
    }

    fn name(self) -> String {
        let mut name = format!("{} x {} KiB", self.files, self.bytes / 1024);
        name += if self.is_new { ", new" } else { ", over" };
        if self.is_lazy {
            name += ", lazy";
        }
        match (self.threads, self.processes) {
            (1, 1) => {}
            (threads, 1) => name += &format!(", {threads} threads"),
            (_, processes) => name += &format!(", {processes} processes"),
        }
        if self.delay_us > 0 {
            name += ", flush +1 ms";
        }
        name
    }

    /// The sides that can be measured: a store that is open in one process can be open in no other.
    fn sides(self, programs: &HashMap<&str, PathBuf>) -> Vec<Side> {
        let is_here = |side: &Side| match side {
            Side::Embedded => self.processes == 1,
            Side::Fstx => cfg!(feature = "fstx") && !self.is_lazy,
            Side::Sqlite | Side::Lmdb | Side::BerkeleyDb => programs.contains_key(side.name()),
            _ => true,
        };
        let all: &[Side] = match self.delay_us {
            0 => &SIDES,
            _ => &DELAYED_SIDES,
        };
        all.iter().copied().filter(is_here).collect()
    }
}

pub fn library(bench: &Bench) -> Result<Vec<Row>> {
    let mut cells = cells(bench.scale);
    let is_unknown = |row: &&String| cells.iter().all(|cell| cell.name() != **row);
    if let Some(row) = bench.rows.iter().find(is_unknown) {
        return Err(Error::NoRow(row.clone()));
    }
    cells.retain(|cell| bench.rows.is_empty() || bench.rows.contains(&cell.name()));
    let mut programs = HashMap::new();
    for side in SIDES {
        if let Some(program) = small::build(side, &bench.cache.join("small"))? {
            programs.insert(side.name(), program);
        }
    }
    if !cfg!(feature = "fstx") {
        eprintln!("SKIPPED fstx: build the bench with `--features fstx` to measure it");
    }
    let mut rows = Vec::new();
    for cell in cells {
        rows.push(measure(bench, cell, &programs)?);
    }
    for side in SIDES {
        clear(&directory(bench, side))?;
    }
    rows.extend(targets(bench, &rows));
    Ok(rows)
}

/// The targets, computed from the rows above.
fn targets(bench: &Bench, rows: &[Row]) -> Vec<Row> {
    let median = |cell: Cell, side| {
        let name = cell.name();
        let row = rows.iter().find(|row| row.workload == name)?;
        Some(row.sides.of(side)?.median())
    };
    let of = |name: &str, value: Option<f64>, unit, at_most| {
        let figure = Figure {
            value: value?,
            unit,
            at_most: Some(at_most),
        };
        Some(Row::figure(name, figure))
    };
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let ten = Cell { files: 10, ..ONE };
    let delayed = |threads| Cell {
        threads,
        delay_us: DELAY_US,
        ..ONE
    };
    let eight = ratio(
        median(delayed(8), Side::Embedded),
        median(delayed(1), Side::Embedded),
    );
    let limit = ratio(median(ONE, Side::Embedded), median(ONE, Side::Append));
    let each = median(ten, Side::Embedded);
    let each = each.map(|all| all * 1000.0 / ten.commits(bench) as f64);
    [
        of(
            "a commit of 4 KiB, to append and fdatasync",
            limit,
            "x",
            1.3,
        ),
        of("a commit of 10 files of 4 KiB", each, "us", 125.0),
        of(
            "time of 8 committers to that of 1, flush +1 ms",
            eight,
            "x",
            8.0 / 6.0,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn directory(bench: &Bench, side: Side) -> PathBuf {
    bench.directory.join(format!("{NAME}-{side}"))
}

fn measure(bench: &Bench, cell: Cell, programs: &HashMap<&str, PathBuf>) -> Result<Row> {
    let sides = cell.sides(programs);
    let measured = in_turns(bench.rounds, &sides, |side| {
        once(bench, cell, side, programs.get(side.name()))
    })?;
    let note = format!("{} commits a thread; plain: renames", cell.commits(bench));
    Ok(Row::new(&cell.name(), measured.whole)
        .reference(Side::Append)
        .note(&note))
}

fn once(bench: &Bench, cell: Cell, side: Side, program: Option<&PathBuf>) -> Result<Outcome> {
    let path = directory(bench, side);
    clear(&path)?;
    make_directory(&path)?;
    for thread in 0..cell.threads * cell.processes {
        let directory = thread_directory(&path, thread);
        fs::create_dir(&directory).describe("make", &directory)?;
    }
    let service = match side {
        Side::Service => Some(Store::warm(&bench.program, &path)?),
        Side::Embedded => {
            atomdir::init(&path, None)?;
            None
        }
        _ => None,
    };
    let mut committers = Vec::new();
    for process in 0..cell.processes {
        let work = Work {
            side,
            directory: path.clone(),
            files: cell.files,
            bytes: cell.bytes as usize,
            is_new: cell.is_new,
            is_lazy: cell.is_lazy,
            delay_us: cell.delay_us,
            threads: cell.threads,
            first: process * cell.threads,
            commits: cell.commits(bench),
        };
        committers.push(Committer::start(&work, program.map(PathBuf::as_path))?);
    }
    bench.rest()?;
    let before = bench.device.written();
    let (mut sample, ()) = timed(|| {
        committers.iter_mut().try_for_each(Committer::go)?;
        committers.iter_mut().try_for_each(|one| one.expect("done"))
    })?;
    let mut written = bench.device.written();
    committers.into_iter().try_for_each(Committer::end)?;
    if let Some(service) = service {
        service.stop()?;
    }
    sync(&path)?;
    let at_rest = bench.device.written();
    if let (Some(before), Some(written), Some(at_rest)) = (before, &mut written, at_rest) {
        written.flushes -= before.flushes;
        written.bytes = at_rest.bytes - before.bytes;
    }
    sample.written = written;
    Ok(sample.into())
}

/// A process that commits.
struct Committer {
    process: Child,
    input: ChildStdin,
    printed: BufReader<ChildStdout>,
}

impl Committer {
    /// Starts the process, and waits until it is ready.
    fn start(work: &Work, program: Option<&Path>) -> Result<Committer> {
        let this = "this program".as_ref();
        let mut command = match program {
            Some(program) => Command::new(program),
            None => {
                let program = std::env::current_exe().describe("find", this)?;
                let mut command = Command::new(program);
                command.arg(load::WORD);
                command
            }
        };
        let mut process = command
            .args(program.is_none().then_some(small::WORD))
            .args(work.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .describe("start", this)?;
        let taken = process.stdin.take().zip(process.stdout.take());
        let (input, printed) = taken.ok_or(Error::NoSide("talk to a process"))?;
        let mut committer = Committer {
            process,
            input,
            printed: BufReader::new(printed),
        };
        committer.expect("ready")?;
        Ok(committer)
    }

    fn go(&mut self) -> Result<()> {
        let written = self.input.write_all(b"\n");
        written.describe("write to", "a process".as_ref())
    }

    fn expect(&mut self, expected: &'static str) -> Result<()> {
        let mut found = String::new();
        let read = self.printed.read_line(&mut found);
        read.describe("read from", "a process".as_ref())?;
        match found.trim_end() == expected {
            true => Ok(()),
            false => Err(Error::OutOfStep { expected, found }),
        }
    }

    /// Closes the input, so that the process closes what it has open and ends.
    fn end(mut self) -> Result<()> {
        drop(self.input);
        let mut rest = String::new();
        let read = self.printed.read_to_string(&mut rest);
        read.describe("read from", "a process".as_ref())?;
        let status = self
            .process
            .wait()
            .describe("await", "a process".as_ref())?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Command {
                command: "a process that commits".to_owned(),
                status,
                output: rest,
            }),
        }
    }
}
