//! We are called by the name of another program: by a link to us, in a directory that is before the
//! program's own in `PATH`, as those of ccache are. Then we start the program, in a transaction if the
//! store that holds the current directory has a profile of it.
//!
//! Without a store, in one that is not to be trusted, and inside of a transaction of the store, the
//! program runs as if we were not there. But if a profile cannot be heeded, the program is not started:
//! it would change the store without the transaction that the store's owner wants for it.

use super::{Profiles, Run, program};
use crate::arguments::Global;
use crate::context::Context;
use crate::error::Error;
use crate::output::Output;
use crate::verbs::{ExitCode, run as verb_run};
use atomdir::client::Current;
use atomdir::{FindError, StoreLocation};
use clap::Parser;
use std::env::{args_os, current_exe, var_os};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that starts the service names it so, and not by a link.
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// If we were called by the name of another program: runs that, and returns what to exit with. If no
/// other program has the name, it is one more name of ours.
pub fn answer(output: Output) -> Option<Result<ExitCode, Error>> {
    let called = args_os()
        .next()
        .filter(|called| called != RUNNING_PROGRAM)?;
    let name = Path::new(&called).file_name()?;
    let own = current_exe().ok()?;
    if name == env!("CARGO_BIN_NAME") || Some(name) == own.file_name() {
        return None;
    }
    let program = program::find(name, &var_os("PATH").unwrap_or_default()).program?;
    Some(start(name, program, output))
}

fn start(name: &OsStr, program: PathBuf, output: Output) -> Result<ExitCode, Error> {
    let arguments: Vec<OsString> = args_os().skip(1).collect();
    // In a directory that has gone there is no store.
    let context = Context::new(&Global::default(), output).ok();
    let profile = match &context {
        Some(context) => profile_words(context, &program)?,
        None => None,
    };
    let (Some(context), Some(mut words)) = (context, profile) else {
        let error = Command::new(&program).arg0(name).args(&arguments).exec();
        return Err(Error::NotStarted { program, error });
    };
    words.extend(["--".into(), program.into()]);
    words.extend(arguments);
    let run = Run::try_parse_from(words).map_err(|error| Error::usage(error.to_string()))?;
    verb_run::run(&run.run, &context)
}

fn profile_words(context: &Context, program: &Path) -> Result<Option<Vec<OsString>>, Error> {
    let Some(store) = store(context)? else {
        return Ok(None);
    };
    let profiles = Profiles::of(&store)?;
    Ok(profiles.find(program).map(super::words))
}

/// The store whose profiles count here.
pub fn store(context: &Context) -> Result<Option<StoreLocation>, Error> {
    let store = match context.store() {
        Ok(store) => store,
        Err(error @ Error::Find(FindError::Io { .. })) => return Err(error),
        // None, or none that any command would use.
        Err(Error::Inside { .. } | Error::Find(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let around = Current::from_environment();
    let is_around = |current: &Current| current.store == store.root;
    let is_inside = store.transaction.is_some() || around.as_ref().is_some_and(is_around);
    Ok((!is_inside).then_some(store))
}
