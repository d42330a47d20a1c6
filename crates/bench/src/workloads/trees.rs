//! The same small change in a small and in a very large tree.

use std::fs::{self, File};
use std::path::Path;

use atomdir::client::BeginOptions;

use crate::bench::Bench;
use crate::error::{Describe, Result};
use crate::load::pages;
use crate::measure::{Side, Sides, in_turns};
use crate::programs::clear;
use crate::report::{Figure, Row};
use crate::workspace::Workspace;

const SMALL_FILES: u64 = 100;
const LARGE_FILES: u64 = 1_000_000;
const DIRECTORY_FILES: u64 = 1000;
const CHANGED_FILES: u64 = 10;
/// The same change may take so many times as long in the larger tree. More than 1, because of noise.
const GROWTH_MAX: f64 = 1.2;

pub fn trees(bench: &Bench) -> Result<Vec<Row>> {
    let large_files = bench.scaled(LARGE_FILES).clamp(SMALL_FILES, LARGE_FILES);
    let small = change(bench, SMALL_FILES)?;
    let large = change(bench, large_files)?;
    let median = |sides: &Sides| sides.best_view().map_or(f64::NAN, |series| series.median());
    let growth = Figure {
        value: median(&large) / median(&small),
        unit: "x",
        at_most: Some(GROWTH_MAX),
    };
    let note = "each rewritten; plain: fsync each";
    Ok(vec![
        Row::new(&format!("10 files of {SMALL_FILES}"), small).note(note),
        Row::new(&format!("10 files of {large_files}"), large).note(note),
        Row::figure("the larger to the smaller", growth),
    ])
}

/// Measures the change. Both sides work on one tree, since making a million files takes long.
fn change(bench: &Bench, files: u64) -> Result<Sides> {
    let workspace = Workspace::fresh(bench, Side::Exact, "trees", |path| fill(path, files))?;
    let mut connection = workspace.connect()?;
    let sides = [Side::Plain, Side::Exact];
    let measured = in_turns(bench.many_rounds(), &sides, |side| {
        let (sample, ()) = workspace.counted(|| match side {
            Side::Exact => {
                let transaction = connection.begin(&BeginOptions::default())?;
                rewrite(&transaction.view_path, files, |_| Ok(()))?;
                connection.commit(transaction.id, &mut |_| {})?;
                Ok(())
            }
            _ => rewrite(&workspace.path, files, pages::flush),
        })?;
        Ok(sample.into())
    })?;
    let path = workspace.path.clone();
    drop((connection, workspace));
    clear(&path)?;
    Ok(measured.whole)
}

fn fill(path: &Path, files: u64) -> Result<()> {
    for first in (0..files).step_by(DIRECTORY_FILES as usize) {
        let directory = directory(path, first);
        fs::create_dir_all(&directory).describe("make", &directory)?;
        for number in first..files.min(first + DIRECTORY_FILES) {
            let file = directory.join(number.to_string());
            File::create(&file).describe("make", &file)?;
        }
    }
    Ok(())
}

fn directory(path: &Path, number: u64) -> std::path::PathBuf {
    path.join((number / DIRECTORY_FILES).to_string())
}

fn rewrite(path: &Path, files: u64, after: impl Fn(&Path) -> Result<()>) -> Result<()> {
    for changed in 0..CHANGED_FILES {
        let number = changed * files / CHANGED_FILES;
        let file = directory(path, number).join(number.to_string());
        fs::write(&file, b"changed").describe("write", &file)?;
        after(&file)?;
    }
    Ok(())
}
