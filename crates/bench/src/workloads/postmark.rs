//! PostMark as it is, in one transaction; and its like with every step durable.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use atomdir::client::BeginOptions;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::{Describe, Result};
use crate::load;
use crate::measure::{Side, in_turns};
use crate::report::{Row, Target};
use crate::workspace::Workspace;

pub struct Configuration {
    pub name: &'static str,
    files: u64,
    directories: u64,
    bytes: (u64, u64),
    target: Target,
    paper: &'static str,
}

impl Configuration {
    /// How many files there are, and how many steps.
    fn count(&self, bench: &Bench) -> u64 {
        bench.scaled(self.files).max(10)
    }
}

pub const CONFIGURATIONS: &[Configuration] = &[
    Configuration {
        name: "PostMark, small files",
        files: 2500,
        directories: 0,
        bytes: (500, 9770),
        target: Target::Ratio(1.4),
        paper: "Amino 1.32x",
    },
    Configuration {
        name: "PostMark, 10x larger files",
        files: 2500,
        directories: 0,
        bytes: (5000, 97_700),
        target: Target::Ratio(1.4),
        paper: "Amino 1.0x",
    },
    Configuration {
        name: "PostMark, 10x more files",
        files: 25_000,
        directories: 0,
        bytes: (500, 9770),
        target: Target::Ratio(1.4),
        paper: "Amino 4.3x",
    },
    Configuration {
        name: "PostMark, 10x more files in 250 directories",
        files: 25_000,
        directories: 250,
        bytes: (500, 9770),
        target: Target::Ratio(1.4),
        paper: "Amino 4.3x",
    },
    Configuration {
        name: "PostMark, 5 to 100 KB",
        files: 2500,
        directories: 0,
        bytes: (5000, 100_000),
        target: Target::Ratio(1.4),
        paper: "",
    },
];

pub fn postmark(bench: &Bench) -> Result<Vec<Row>> {
    let sides = bench.sides_with_overlay();
    let mut rows = Vec::new();
    for configuration in CONFIGURATIONS {
        let Some(script) = script(bench, configuration)? else {
            eprintln!("postmark: left out, Debian's package cannot be fetched");
            return Ok(Vec::new());
        };
        let measured = in_turns(bench.few_rounds(), &sides, |side| {
            Workspace::fresh(bench, side, "postmark", |_| Ok(()))?.run(&script)
        })?;
        compare::sides(bench, "postmark", Degree::Contents, &sides)?;
        rows.push(
            Row::new(configuration.name, measured.whole)
                .target(configuration.target)
                .paper(configuration.paper)
                .note(&format!(
                    "{0} files, {0} steps, one transaction",
                    configuration.count(bench)
                )),
        );
    }
    Ok(rows)
}

/// Runs PostMark; `None`: there is no PostMark.
pub fn script(bench: &Bench, configuration: &Configuration) -> Result<Option<String>> {
    let Some(program) = corpus::postmark(&bench.cache)? else {
        return Ok(None);
    };
    let files = configuration.count(bench);
    let (least, most) = configuration.bytes;
    let directories = configuration.directories;
    let settings = bench.directory.join("postmark.settings");
    let text = format!(
        "set number {files}\nset transactions {files}\nset size {least} {most}\n\
         set subdirectories {directories}\nset seed 42\nset location .\nrun\nquit\n"
    );
    fs::write(&settings, text).describe("write", &settings)?;
    // What it did, without how fast, is left for the comparison.
    Ok(Some(format!(
        "'{}' '{}' | sed -n 's/(.*//; /created\\|read$\\|appended\\|deleted/p' > did; grep -q created did",
        program.display(),
        settings.display()
    )))
}

const MAILBOXES: u64 = 100;

/// Each step reads or appends to one file and creates or deletes another, as
/// PostMark's do. Plain: what a file system mounted `sync` does after each call.
pub fn mail(bench: &Bench) -> Result<Vec<Row>> {
    let steps = bench.scaled(MAILBOXES);
    let sides = [Side::Plain, Side::Exact];
    let measured = in_turns(bench.rounds, &sides, |side| {
        let fill = |path: &Path| load::files::create(&path.join("box"), MAILBOXES);
        let workspace = Workspace::fresh(bench, side, "mail", fill)?;
        let mut connection = match side {
            Side::Exact => Some(workspace.connect()?),
            _ => None,
        };
        let (sample, ()) = workspace.counted(|| {
            (0..steps).try_for_each(|step| match &mut connection {
                None => deliver(&workspace.path.join("box"), step, true),
                Some(connection) => {
                    let transaction = connection.begin(&BeginOptions::default())?;
                    deliver(&transaction.view_path.join("box"), step, false)?;
                    connection.commit(transaction.id, &mut |_| {})?;
                    Ok(())
                }
            })
        })?;
        Ok(sample.into())
    })?;
    compare::sides(bench, "mail", Degree::Contents, &sides)?;
    Ok(vec![
        Row::new("PostMark's steps, each durable", measured.whole)
            .paper("Amino 2.6x")
            .note(&format!("{steps} steps; plain: fsync after each call")),
    ])
}

/// Two new files for each that goes, so that none is missed.
fn deliver(directory: &Path, step: u64, sync: bool) -> Result<()> {
    let touched = directory.join((step * 7 % MAILBOXES).to_string());
    if step.is_multiple_of(2) {
        let mut read = Vec::new();
        File::open(&touched)
            .and_then(|mut file| file.read_to_end(&mut read))
            .describe("read", &touched)?;
    } else {
        append(&touched, 2048, sync)?;
    }
    let delivered = |step: u64| directory.join(format!("delivered-{step}"));
    if step % 3 == 2 {
        let gone = delivered(step - 1);
        fs::remove_file(&gone).describe("remove", &gone)?;
    } else {
        append(&delivered(step), 4096, sync)?;
    }
    if sync {
        load::pages::flush(directory)?;
    }
    Ok(())
}

fn append(path: &Path, bytes: usize, sync: bool) -> Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .describe("open", path)?;
    file.write_all(&vec![b'm'; bytes]).describe("write", path)?;
    if sync {
        file.sync_all().describe("flush", path)?;
    }
    Ok(())
}
