//! A commit rewrites many small files. Measures a view of the past before it, and its undo; with
//! several numbers of files, since the time must not grow faster than their number.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atomdir::client::BeginOptions;

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::measure::{Outcome, Sample, Side, in_turns, timed};
use crate::programs::output;
use crate::report::Row;
use crate::workspace::Workspace;

const FILES: [u64; 4] = [12_500, 25_000, 50_000, 100_000];
const DIRECTORY_FILES: u64 = 1000;
const OLD: &str = "as it was before the commit";
const NEW: &str = "as the commit has left it";

pub fn undo(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for files in FILES {
        let files = bench.scaled(files);
        let measured = in_turns(bench.few_rounds(), &[Side::Exact], |side| {
            rewrite_and_undo(bench, side, files)
        })?;
        for (step, name) in [("at", "view of the past"), ("undo", "undo")] {
            let name = format!("{name}, {files} files rewritten");
            rows.push(Row::new(&name, measured.step(step)));
        }
    }
    Ok(rows)
}

fn rewrite_and_undo(bench: &Bench, side: Side, files: u64) -> Result<Outcome> {
    let workspace = Workspace::fresh(bench, side, "undo", |path| fill(path, files))?;
    let mut connection = workspace.connect()?;
    let transaction = connection.begin(&BeginOptions::default())?;
    write_all(&transaction.view_path, files, NEW)?;
    connection.commit(transaction.id, &mut |_| {})?;
    expect(&workspace.path, files, NEW)?;
    bench.rest()?;
    let mut steps = Vec::new();
    for (step, arguments) in [
        ("at", &["at", "0", "--", "true"] as &[&str]),
        ("undo", &["undo", "1"]),
    ] {
        let mut command = workspace.store()?.command(arguments);
        let (sample, _) = timed(|| output(&mut command))?;
        steps.push((step.to_owned(), duration(sample)));
        bench.rest()?;
    }
    expect(&workspace.path, files, OLD)?;
    let whole: Duration = steps.iter().map(|(_, took)| *took).sum();
    Ok(Outcome {
        whole: whole.into(),
        steps,
    })
}

fn duration(sample: Sample) -> Duration {
    Duration::from_secs_f64(sample.milliseconds / 1000.0)
}

fn file(directory: &Path, number: u64) -> PathBuf {
    let within = directory.join((number / DIRECTORY_FILES).to_string());
    within.join(number.to_string())
}

fn fill(directory: &Path, files: u64) -> Result<()> {
    for number in (0..files).step_by(DIRECTORY_FILES as usize) {
        let path = file(directory, number);
        let within = path.parent().unwrap_or(directory);
        fs::create_dir_all(within).describe("make", within)?;
    }
    write_all(directory, files, OLD)
}

fn write_all(directory: &Path, files: u64, text: &str) -> Result<()> {
    for number in 0..files {
        let path = file(directory, number);
        fs::write(&path, text).describe("write", &path)?;
    }
    Ok(())
}

fn expect(directory: &Path, files: u64, text: &str) -> Result<()> {
    for number in 0..files {
        let path = file(directory, number);
        let found = fs::read_to_string(&path).describe("read", &path)?;
        if found != text {
            return Err(Error::Undone { path, found });
        }
    }
    Ok(())
}
