//! Unpacks a tree of thousands of files, and adds and commits it with git.

use std::fs;
use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Describe, Result};
use crate::measure::in_turns;
use crate::programs::{make_directory, shell};
use crate::report::{Row, Target};
use crate::workspace::Workspace;

/// Unpacks the archive. On every side the files are durable at the end.
pub fn unpack(bench: &Bench) -> Result<Vec<Row>> {
    let sides = bench.sides_with_overlay();
    let script = format!(
        "step -; tar xf '{}'; step tar",
        bench.corpus.archive.display()
    );
    let measured = in_turns(bench.rounds, &sides, |side| {
        Workspace::fresh(bench, side, "unpack", |_| Ok(()))?.run(&script)
    })?;
    compare::sides(bench, "unpack", Degree::Exact, &sides)?;
    let note = bench.corpus.note();
    Ok(vec![
        Row::new("unpack, durable", measured.whole.clone())
            .target(Target::Ratio(1.3))
            .note(&note),
        Row::new("unpack: tar itself", measured.step("tar")),
        Row::new("unpack: commit", measured.step("commit")).note("plain: syncfs"),
    ])
}

const ADDED: u64 = 20_000;
const ADDED_BYTES: usize = 1024;
const FILES_IN_DIRECTORY: u64 = 100;

/// Sets the dates, so that every side makes the same objects.
pub(super) const GIT: &str = "
export GIT_AUTHOR_DATE=@1000000000 GIT_COMMITTER_DATE=@1000000000 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init --quiet; git add --all; git -c gc.auto=0 commit --quiet --message=all";
const INIT: &str = "git init --quiet";
const ADD: &str = "GIT_CONFIG_GLOBAL=/dev/null git add --all";

pub fn git(bench: &Bench) -> Result<Vec<Row>> {
    let sides = bench.sides_with_overlay();
    let fill = format!("tar xf '{}'", bench.corpus.archive.display());
    let script = format!("step -\n{GIT}\nstep git");
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        let fill = |path: &Path| shell(path, &fill).map(|_| ());
        Workspace::fresh(bench, side, "git", fill)?.run(&script)
    })?;
    compare::sides(bench, "git", Degree::Names, &sides)?;
    Ok(vec![
        Row::new("git init, add, commit", measured.whole.clone())
            .target(Target::Ratio(1.1))
            .note(&bench.corpus.note()),
        Row::new("git: commit", measured.step("commit")).note("plain: syncfs"),
        add(bench)?,
    ])
}

/// Only `git add`, of files that all differ.
fn add(bench: &Bench) -> Result<Row> {
    let files = bench.scaled(ADDED);
    let sides = bench.sides();
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        let fill = |path: &Path| fill(path, files);
        Workspace::fresh(bench, side, "git-add", fill)?.run(ADD)
    })?;
    compare::sides(bench, "git-add", Degree::Names, &sides)?;
    let row = Row::new("git add of 20 000 files", measured.whole);
    Ok(row.note(&format!("{files} files")))
}

fn fill(path: &Path, files: u64) -> Result<()> {
    shell(path, INIT)?;
    for number in 0..files {
        let directory = path.join((number / FILES_IN_DIRECTORY).to_string());
        if number % FILES_IN_DIRECTORY == 0 {
            make_directory(&directory)?;
        }
        let line = format!("{number}\n");
        let contents = line.repeat(ADDED_BYTES.div_ceil(line.len()));
        let file = directory.join(number.to_string());
        fs::write(&file, contents).describe("write", &file)?;
    }
    Ok(())
}
