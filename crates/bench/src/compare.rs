//! Checks that all sides of a workload have produced the same files.

use std::path::Path;
use std::process::Command;

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::measure::Side;
use crate::programs::{clear, shell};

/// Names, kinds, modes, owners, link targets, file times and sizes.
const MANIFEST: &str = r"find . -mindepth 1 -path ./.atomdir -prune -o \
    \( -type f -printf '%P %y %m %U %G %s %T@\n' -o -type l -printf '%P %y %l\n' \
       -o -printf '%P %y %m %U %G\n' \) | sort";

/// Like MANIFEST, without the properties that differ between two builds.
const NAMES: &str = r"find . -mindepth 1 -path ./.atomdir -prune -o -printf '%P %y %m\n' | sort";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degree {
    /// Contents and attributes, including the times of files.
    Exact,
    /// Contents, names, kinds and modes.
    Contents,
    /// Names, kinds and modes, for workloads whose contents include the directory or the time.
    Names,
}

/// Compares the first side's files with those of each other side, and removes them all.
pub fn sides(bench: &Bench, name: &str, degree: Degree, sides: &[Side]) -> Result<()> {
    let place = |side: Side| bench.directory.join(format!("{name}-{side}"));
    if let [first, others @ ..] = sides {
        for other in others {
            trees(name, degree, &place(*first), (*other, &place(*other)))?;
        }
    }
    sides.iter().try_for_each(|side| clear(&place(*side)))
}

pub fn trees(workload: &str, degree: Degree, one: &Path, other: (Side, &Path)) -> Result<()> {
    let (side, other) = other;
    let manifest = match degree {
        Degree::Exact => MANIFEST,
        Degree::Contents | Degree::Names => NAMES,
    };
    let differs = |difference| {
        Err(Error::Differs {
            workload: workload.to_owned(),
            side: side.name(),
            difference,
        })
    };
    let (left, right) = (shell(one, manifest)?, shell(other, manifest)?);
    let unequal = left
        .lines()
        .zip(right.lines())
        .find(|(left, right)| left != right);
    if let Some((left, right)) = unequal {
        return differs(format!("- {left}\n+ {right}"));
    }
    if left.len() != right.len() {
        return differs("one side has more entries".to_owned());
    }
    if degree == Degree::Names {
        return Ok(());
    }
    let difference = Command::new("diff")
        .args(["-r", "--no-dereference", "--brief", "--exclude=.atomdir"])
        .args([one, other])
        .output()
        .describe("compare", other)?;
    if difference.status.success() {
        return Ok(());
    }
    differs(String::from_utf8_lossy(&difference.stdout).into_owned())
}
