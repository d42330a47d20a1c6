//! Builds the C program that makes transactions in a database. It is built when it is needed, so that
//! the bench itself can be built without the databases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Describe, Result};
use crate::measure::Side;
use crate::programs::{make_directory, output};

const SOURCE: &str = include_str!("databases.c");

/// Builds the program for a database. Returns `None`, and prints why, if it cannot be built here.
pub fn build(side: Side, cache: &Path) -> Result<Option<PathBuf>> {
    let (define, library, package) = match side {
        Side::Sqlite => ("PEER_SQLITE", "-lsqlite3", "libsqlite3-dev"),
        Side::Lmdb => ("PEER_LMDB", "-llmdb", "liblmdb-dev"),
        Side::BerkeleyDb => ("PEER_BERKELEY_DB", "-ldb-5.3", "libdb5.3-dev"),
        _ => return Ok(None),
    };
    make_directory(cache)?;
    let source = cache.join("databases.c");
    fs::write(&source, SOURCE).describe("write", &source)?;
    let program = cache.join(format!("small-{side}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-D{define}"))
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .args([library, "-lpthread"]);
    if let Err(error) = output(&mut cc) {
        eprintln!("SKIPPED {side}: install {package} and a C compiler to measure it\n{error}");
        return Ok(None);
    }
    Ok(Some(program))
}
