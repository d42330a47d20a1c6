//! PostMark, unchanged, in one transaction.

use std::fs;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::{Describe, Result};
use crate::measure::{Side, in_turns};
use crate::report::{Row, Target};
use crate::workloads::outside;
use crate::workspace::Workspace;

pub struct Configuration {
    pub name: &'static str,
    pub(super) files: u64,
    pub(super) steps: u64,
    pub(super) directories: u64,
    pub(super) bytes: (u64, u64),
}

const SMALL: (u64, u64) = (500, 9770);
const RATIO_MAX: f64 = 1.4;

impl Configuration {
    const fn new(name: &'static str, files: u64, bytes: (u64, u64)) -> Configuration {
        Configuration {
            name,
            files,
            steps: files,
            directories: 0,
            bytes,
        }
    }
}

/// Amino's four configurations, and two numbers of files that show how the cost grows.
pub const CONFIGURATIONS: &[Configuration] = &[
    Configuration::new("PostMark, small files", 2500, SMALL),
    Configuration::new("PostMark, 10x larger files", 2500, (5000, 97_700)),
    Configuration::new("PostMark, 10x more files", 25_000, SMALL),
    Configuration {
        directories: 250,
        ..Configuration::new("PostMark, 10x more files in 250 directories", 25_000, SMALL)
    },
    Configuration::new("PostMark, 5 000 files", 5000, SMALL),
    Configuration {
        steps: 5000,
        ..Configuration::new("PostMark, 100 000 files", 100_000, SMALL)
    },
];

pub fn postmark(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for configuration in CONFIGURATIONS {
        let Some(script) = script(bench, configuration)? else {
            eprintln!("postmark: left out, Debian's package cannot be fetched");
            return Ok(Vec::new());
        };
        // The times of long runs vary little, so fewer rounds and sides are enough.
        let (rounds, sides) = match configuration.files {
            0..10_000 => (bench.few_rounds(), bench.sides_with_overlay()),
            10_000..50_000 => (1, bench.sides()),
            _ => (1, vec![Side::Plain, bench.default_view()]),
        };
        let measured = in_turns(rounds, &sides, |side| {
            Workspace::fresh(bench, side, "postmark", |_| Ok(()))?.run(&script)
        })?;
        compare::sides(bench, "postmark", Degree::Contents, &sides)?;
        let (files, steps) = count(bench, configuration);
        let row = Row::new(configuration.name, measured.whole).target(Target::Ratio(RATIO_MAX));
        if rows.is_empty() {
            let name = configuration.name;
            rows.push(outside::beside_an_empty_one(bench, name, &script)?);
        }
        rows.push(row.note(&format!("{files} files, {steps} steps, one transaction")));
    }
    Ok(rows)
}

/// The numbers of files and of steps.
fn count(bench: &Bench, configuration: &Configuration) -> (u64, u64) {
    let scaled = |count| bench.scaled(count).max(10);
    (scaled(configuration.files), scaled(configuration.steps))
}

/// A script that runs PostMark. `None` if PostMark cannot be downloaded.
pub fn script(bench: &Bench, configuration: &Configuration) -> Result<Option<String>> {
    let Some(program) = corpus::postmark(&bench.cache)? else {
        return Ok(None);
    };
    let (files, steps) = count(bench, configuration);
    let (least, most) = configuration.bytes;
    let directories = configuration.directories;
    let settings = bench.directory.join("postmark.settings");
    let text = format!(
        "set number {files}\nset transactions {steps}\nset size {least} {most}\n\
         set subdirectories {directories}\nset seed 42\nset location .\nrun\nquit\n"
    );
    fs::write(&settings, text).describe("write", &settings)?;
    // Keep PostMark's counts, without its times, in the file that the sides are compared by.
    Ok(Some(format!(
        "'{}' '{}' | sed -n 's/(.*//; /created\\|read$\\|appended\\|deleted/p' > did; grep -q created did",
        program.display(),
        settings.display()
    )))
}
