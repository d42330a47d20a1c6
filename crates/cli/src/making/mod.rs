//! Runs GNU make so that each recipe is a transaction.
//!
//! Make itself is unchanged. It reads one more makefile after those of the project, which sets
//! `.ONESHELL`, so that make passes a recipe to its shell as a whole, and makes us that shell
//! (`recipe`). It also puts us in the place of `$(MAKE)`, so that a makefile deeper in the tree
//! is read in the same way.
//!
//! We are called by names in a directory that lasts as long as make runs:
//! - `atomdir-sh` is `$(SHELL)`. It cannot be called `sh`: make then removes what tells it to
//!   ignore errors from the lines of a recipe.
//! - `atomdir-make` is `$(MAKE)`.

mod recipe;
mod words;

use crate::context::Context;
use crate::enter::run_outside;
use crate::error::Error;
use crate::files;
use crate::output::quoted;
use crate::verbs::ExitCode;
use rustix::fs::{CWD, Mode, OFlags, open, symlink};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHELL: &str = "atomdir-sh";
const MAKE: &str = "atomdir-make";
const MAKEFILE: &str = "atomdir.mk";
/// Make's own exit code if a recipe failed.
const MAKE_FAILED: ExitCode = 2;

/// If we were called by one of the names that make knows: runs that, and returns what to exit with.
pub fn answer_make() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let name = PathBuf::from(words.next()?);
    let directory = name.parent()?.to_owned();
    let words: Vec<OsString> = words.collect();
    let failed = match name.file_name()?.to_str()? {
        SHELL => recipe::run(&directory, &words),
        MAKE => match make(&directory, &words) {
            Ok(Made { cut_short, .. }) if !cut_short.is_empty() => {
                let targets = quoted(&cut_short);
                io::Error::other(format!("the recipe of {targets} was not run to its end"))
            }
            Ok(made) => return Some(made.code),
            Err(error) => error,
        },
        _ => return None,
    };
    let _ = writeln!(io::stderr(), "atomdir make: {failed}");
    Some(MAKE_FAILED)
}

/// Runs make with these arguments. `options` are those of `atomdir run` for each recipe.
pub fn run(context: &Context, options: &[String], words: &[OsString]) -> Result<ExitCode, Error> {
    // The service then runs before the first recipe does, until make has ended.
    let connected = context.connect()?;
    let scratch = prepare(options).map_err(Error::Make)?;
    if scratch.path().starts_with(&connected.root) {
        return Err(Error::Usage {
            message: "the directory for temporary files is in the store".to_owned(),
            hint: Some("set TMPDIR to another one".to_owned()),
        });
    }
    let Made { code, cut_short } = make(scratch.path(), words).map_err(Error::Make)?;
    drop(connected);
    match cut_short.is_empty() {
        true => Ok(code),
        false => Err(Error::CutShort { targets: cut_short }),
    }
}

/// How a make has ended.
struct Made {
    code: ExitCode,
    /// The targets whose recipes were not run to the end although make went on.
    cut_short: Vec<u8>,
}

fn make(directory: &Path, words: &[OsString]) -> io::Result<Made> {
    let mut make = Command::new("make");
    make.args(words::with_makefile(words, &directory.join(MAKEFILE)));
    let (process, ended) = run_outside(make)?;
    let note = recipe::note_of(directory, process);
    let cut_short = files::read_at(CWD, &note).unwrap_or_default();
    // A make that failed has not ignored the errors, and its caller may ignore its own.
    let _ = rustix::fs::unlink(&note);
    let code = ended.exit_code();
    Ok(Made {
        code,
        cut_short: match code {
            0 => cut_short.trim_ascii_end().to_vec(),
            _ => Vec::new(),
        },
    })
}

/// Makes the directory with the makefile and our names.
fn prepare(options: &[String]) -> io::Result<tempfile::TempDir> {
    let scratch = tempfile::Builder::new().prefix("atomdir-make-").tempdir()?;
    let program = std::env::current_exe()?;
    for name in [SHELL, MAKE] {
        symlink(&program, scratch.path().join(name))?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = open(
        scratch.path().join(MAKEFILE),
        flags,
        Mode::RUSR | Mode::WUSR,
    )?;
    files::write_all_at(&file, &makefile(scratch.path(), options), 0)?;
    Ok(scratch)
}

/// What make reads after the makefiles of the project. Its own rule never becomes the default goal: make
/// then fails where the project has none, or no makefile.
fn makefile(directory: &Path, options: &[String]) -> Vec<u8> {
    let rest = format!(
        "
export {shell} := $(SHELL)
export {flags} := $(.SHELLFLAGS)
export {makefiles} := $(filter-out $(.atomdir)/%,$(MAKEFILE_LIST))
export {target} = $@
override SHELL := $(.atomdir)/{SHELL}
override .SHELLFLAGS := {marker} {options} --
override MAKE := $(.atomdir)/{MAKE}
.atomdir.goal := $(.DEFAULT_GOAL)
.ONESHELL:
$(.atomdir)/{MAKEFILE}: ;
.DEFAULT_GOAL := $(.atomdir.goal)
",
        shell = recipe::SHELL_VARIABLE,
        flags = recipe::FLAGS_VARIABLE,
        makefiles = recipe::MAKEFILES_VARIABLE,
        target = recipe::TARGET_VARIABLE,
        marker = recipe::MARKER,
        options = options.join(" "),
    );
    // A path need not be text.
    let directory = directory.as_os_str().as_bytes();
    [b"override .atomdir := ", directory, rest.as_bytes()].concat()
}
