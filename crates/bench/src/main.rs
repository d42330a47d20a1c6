//! Compares the costs of Atomdir with those of the plain file system, in one table.
//!
//! All sides of a workload take turns in one run, in fresh directories of one file system. The files
//! that they read are in the page cache. All sides must produce the same files.
//!
//! Modules
//! - `workloads`, `load`, `small`: the workloads by family; the programs that they run
//! - `bench`, `workspace`, `overlay`, `compare`: the settings of a run; the directory of one side; the
//!   kernel's overlay as another side; whether all sides left the same files
//! - `measure`, `device`, `processor`, `machine`, `limit`, `uring`: measuring in turns; counting a
//!   device's writes; processor time; the machine; limiting memory; FUSE over io_uring
//! - `corpus`, `image`, `programs`: what is measured: files, file systems, Atomdir
//! - `papers`, `report`: the figures of papers beside ours; tables and JSON
//! - `leftovers`, `error`: what killed runs have left; errors

mod bench;
mod compare;
mod corpus;
mod device;
mod error;
mod image;
mod leftovers;
mod limit;
mod load;
mod machine;
mod measure;
mod overlay;
mod papers;
mod processor;
mod programs;
mod report;
mod small;
mod uring;
mod workloads;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use bench::Bench;
use device::Device;
use error::{Describe, Error, Result};
use image::{FileSystem, Image};
use machine::Machine;
use measure::Side;
use papers::Measured;
use report::Row;

#[derive(Debug, Parser)]
#[command(
    name = "atomdir-bench",
    about = "Measure Atomdir beside the plain file system",
    after_help = workload_names()
)]
struct Arguments {
    /// Measured rounds of each workload; short workloads take more rounds, long ones fewer
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Multiplies the sizes of the workloads; 16 is the size in Valor's paper, 2 GiB
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only these workloads [default: all]
    #[arg(value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Measure only this row of the workloads `library` and `bulk`; may be repeated [default: all]
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Run the workloads of five papers, and print the papers' figures beside the results
    #[arg(long)]
    papers: bool,
    /// Measure nothing; use the rows that an earlier run has printed as JSON; may be repeated
    #[arg(long, value_name = "FILE", requires = "papers")]
    from: Vec<PathBuf>,
    /// Draw the papers' figures into this directory, as SVG
    #[arg(long, value_name = "DIR", requires = "papers")]
    plots: Option<PathBuf>,
    /// Write the papers' tables into this document, between its marker lines
    #[arg(long, value_name = "FILE", requires = "papers")]
    markdown: Option<PathBuf>,
    /// The atomdir to measure [default: the one built beside this program]
    #[arg(long, value_name = "PATH")]
    atomdir: Option<PathBuf>,
    /// The directory to work in, on the file system to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    directory: PathBuf,
    /// Make a new file system in an image in that directory, and measure it; as root
    #[arg(long, value_enum, value_name = "KIND")]
    file_system: Option<FileSystem>,
    /// Keep the image in memory, and make each flush N microseconds longer (needs cc and
    /// libfuse3-dev)
    #[arg(long, value_name = "N", requires = "file_system")]
    flush_us: Option<u64>,
}

impl Arguments {
    fn wants(&self, workload: &str) -> bool {
        match self.only.is_empty() {
            true => !self.papers || papers::needs(workload),
            false => self.only.iter().any(|only| only == workload),
        }
    }
}

fn workload_names() -> String {
    let names: Vec<&str> = workloads::ALL.iter().map(|(name, _)| *name).collect();
    format!(
        "Workloads: {}\n\nOn an idle machine of two processors `library` takes three quarters of \
         an hour, those of the papers twenty minutes with one round; on a busy one several times that.",
        names.join(", ")
    )
}

fn main() -> ExitCode {
    // Some workloads run this program itself, as the program in a transaction.
    let words: Vec<String> = std::env::args().collect();
    let done = match words.get(1) {
        Some(word) if word == load::WORD => load::run(&words[2..]),
        _ => measure(&Arguments::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atomdir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    if !arguments.from.is_empty() {
        return show_papers(arguments, &Measured::read(&arguments.from)?);
    }
    let unknown = |name: &&String| !workloads::ALL.iter().any(|(known, _)| known == name);
    if let Some(name) = arguments.only.iter().find(unknown) {
        return Err(Error::NoWorkload(name.clone()));
    }
    let program = match &arguments.atomdir {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .describe("find", "this program".as_ref())?
            .with_file_name("atomdir"),
    };
    if !program.is_file() {
        return Err(Error::NoBinary(program));
    }
    leftovers::clear_in(&arguments.directory)?;
    let directory = arguments.directory.join(leftovers::directory_name());
    programs::make_directory(&directory)?;
    let _uring = uring::Switched::on();
    let rows = measure_in(arguments, program, &directory);
    let cleared = programs::clear(&directory);
    let (machine, rows, failures) = rows?;
    let json = report::json(&machine, (arguments.rounds, arguments.scale), &rows);
    if arguments.json {
        println!("{json:#}");
    } else if !arguments.papers {
        println!("{}\n\n{}", machine.line(), report::table(&rows));
    }
    if arguments.papers {
        let mut measured = Measured::default();
        measured.add(&json);
        show_papers(arguments, &measured)?;
    }
    // Report this error last, so that the results are shown in any case.
    cleared?;
    match failures {
        0 => Ok(()),
        count => Err(Error::Workloads(count)),
    }
}

fn show_papers(arguments: &Arguments, measured: &Measured) -> Result<()> {
    if !arguments.json {
        print!("{}", papers::table(measured));
    }
    if let Some(directory) = &arguments.plots {
        papers::write_plots(directory, measured)?;
    }
    match &arguments.markdown {
        Some(document) => papers::write_markdown(document, measured),
        None => Ok(()),
    }
}

/// Runs the workloads. Returns the machine, the rows, and how many workloads failed: the rows of the
/// others are shown all the same.
fn measure_in(
    arguments: &Arguments,
    program: PathBuf,
    directory: &Path,
) -> Result<(Machine, Vec<Row>, usize)> {
    let image = match arguments.file_system {
        Some(kind) => Some(Image::mount(kind, arguments.flush_us, directory)?),
        None => None,
    };
    let measured = image.as_ref().map_or(directory, |image| &image.root);
    let mut machine = Machine::here(measured);
    if let Some(flush_us) = arguments.flush_us {
        machine.flush_us = Some(flush_us);
        machine.file_system += &format!(" in memory, each flush {flush_us} us longer");
    }
    let bench = Bench {
        corpus: corpus::pack(
            &directory.join("corpus"),
            (CORPUS_ENTRIES as f64 * arguments.scale) as usize,
        )?,
        device: Device::of(measured)?,
        views: views(&program)?,
        program,
        directory: measured.to_owned(),
        cache: arguments.directory.join("atomdir-bench-cache"),
        rounds: arguments.rounds,
        rows: arguments.rows.clone(),
        scale: arguments.scale,
        may_mount: rustix::process::geteuid().is_root(),
    };
    let (mut rows, mut failures) = (Vec::new(), 0);
    let began_all = Instant::now();
    for (name, workload) in workloads::ALL {
        if !arguments.wants(name) {
            continue;
        }
        let began = Instant::now();
        match workload(&bench) {
            Ok(measured) => rows.extend(measured.into_iter().map(|row| Row {
                workload: name,
                ..row
            })),
            Err(error) => {
                failures += 1;
                eprintln!("atomdir-bench: {name}: {error}");
            }
        }
        eprintln!("measured {name} in {:.0} s", began.elapsed().as_secs_f64());
    }
    let minutes = began_all.elapsed().as_secs_f64() / 60.0;
    eprintln!("measured all these workloads in {minutes:.1} min");
    Ok((machine, rows, failures))
}

const CORPUS_ENTRIES: u64 = 9000;

/// The kinds of views that `run` offers.
fn views(program: &Path) -> Result<Vec<Side>> {
    let help = programs::output(std::process::Command::new(program).args(["run", "--help"]))?;
    Ok(match help.contains("--view") {
        true => vec![Side::Exact, Side::Native],
        false => vec![Side::Exact],
    })
}
