//! Reading a tree that has not changed: the first time, and again.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Bench;
use crate::compare::{self, Degree};
use crate::error::{Error, Result};
use crate::measure::{Pair, Side, alternate, rest, timed};
use crate::programs::{Store, clear, make_directory, output, shell};
use crate::report::{Line, Target};

const PATTERN: &str = "no such text anywhere";
const PASSES: usize = 3;

pub fn measure(bench: &Bench) -> Result<Vec<Line>> {
    let plain = bench.directory.join("search-plain");
    let base = bench.directory.join("search-store");
    for place in [&plain, &base] {
        make_directory(place)?;
        shell(
            place,
            &format!("tar xf '{}'", bench.corpus.archive.display()),
        )?;
    }
    let store = Store::warm(&bench.program, &base)?;
    let mut passes = vec![Pair::default(); PASSES];
    // The first pass is what alternates; the others follow it at once.
    alternate(bench.rounds, |side, round| {
        let view = match side {
            Side::Plain => None,
            Side::Transaction => Some(begin(&store)?),
        };
        let place = view.as_ref().map_or(&plain, |(_, path)| path);
        let mut first = None;
        rest();
        for pair in &mut passes {
            let (took, ()) = timed(|| search(place))?;
            first.get_or_insert(took);
            if round > 0 {
                pair.of_mut(side).add(took);
            }
        }
        if let Some((transaction, _)) = &view {
            output(&mut store.command(["abort", transaction]))?;
        }
        Ok(first.unwrap_or_default())
    })?;
    // What was searched is the same on both sides, seen through a view.
    let (_, view) = begin(&store)?;
    compare::trees("grep -r", Degree::Exact, &plain, &view)?;
    store.stop()?;
    clear(&plain)?;
    clear(&base)?;
    let names = [
        "grep -r, first pass",
        "grep -r, second pass",
        "grep -r, third pass",
    ];
    let targets = [Target::None, Target::Ratio(1.2), Target::None];
    Ok(names
        .into_iter()
        .zip(targets)
        .zip(passes)
        .map(|((workload, target), pair)| Line {
            workload,
            note: match target {
                Target::None => {
                    let ratio = pair.transaction.median() / pair.plain.median();
                    format!("{ratio:.2}x")
                }
                _ => String::new(),
            },
            pair,
            target,
        })
        .collect())
}

fn begin(store: &Store) -> Result<(String, PathBuf)> {
    let printed = output(&mut store.command(["begin"]))?;
    let mut lines = printed.lines();
    match (lines.next(), lines.next()) {
        (Some(transaction), Some(view)) => Ok((transaction.to_owned(), PathBuf::from(view))),
        _ => Err(Error::NoView(printed)),
    }
}

/// Finds nothing, which grep tells by 1.
fn search(place: &Path) -> Result<()> {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", r#"grep -r "$1" .; test $? = 1"#, "sh", PATTERN])
        .current_dir(place)
        .env("LC_ALL", "C");
    output(&mut command).map(|_| ())
}
