//! What Atomdir costs beside the plain file system, in one table.
//!
//! Both sides take turns in one run, on fresh directories of one file system,
//! with what they read in the page cache; their outcomes are compared. Given
//! are medians, and in brackets the least and the most.

mod compare;
mod corpus;
mod error;
mod measure;
mod programs;
mod report;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use error::{Describe, Error, Result};
use workloads::Bench;

#[derive(Debug, Parser)]
#[command(
    name = "atomdir-bench",
    about = "Measure Atomdir beside the plain file system"
)]
struct Arguments {
    /// Measured rounds of each workload
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these workloads: empty, unpack, search, build
    #[arg(value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The atomdir to measure [default: the one built beside this program]
    #[arg(long, value_name = "PATH")]
    atomdir: Option<PathBuf>,
    /// Where to work: on the file system to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(lines) if arguments.json => println!("{:#}", report::json(&lines)),
        Ok(lines) => print!("{}", report::table(&lines)),
        Err(error) => {
            eprintln!("atomdir-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(arguments: &Arguments) -> Result<Vec<report::Line>> {
    let program = match &arguments.atomdir {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .describe("find", "this program".as_ref())?
            .with_file_name("atomdir"),
    };
    if !program.is_file() {
        return Err(Error::NoBinary(program));
    }
    let directory = arguments
        .directory
        .join(format!("atomdir-bench-{}", std::process::id()));
    let cache = arguments.directory.join("atomdir-bench-cache");
    programs::make_directory(&directory)?;
    let lines = measure_in(arguments, program, directory.clone(), cache);
    let cleared = programs::clear(&directory);
    let lines = lines?;
    cleared?;
    Ok(lines)
}

fn measure_in(
    arguments: &Arguments,
    program: PathBuf,
    directory: PathBuf,
    cache: PathBuf,
) -> Result<Vec<report::Line>> {
    let bench = Bench {
        corpus: corpus::pack(&directory.join("corpus"))?,
        program,
        directory,
        cache,
        rounds: arguments.rounds,
    };
    let mut lines = Vec::new();
    for (name, workload) in workloads::ALL {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| only == name) {
            eprintln!("measuring: {name}");
            lines.append(&mut workload(&bench)?);
        }
    }
    Ok(lines)
}
