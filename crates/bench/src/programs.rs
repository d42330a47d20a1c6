//! Runs programs, and the store of the `atomdir` that is measured.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Describe, Error, Result};

/// Runs a command and returns its standard output. Fails if the command does.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .describe("start", &program)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(Error::Command {
        command: shown,
        status: output.status,
        output: text + &String::from_utf8_lossy(&output.stderr),
    })
}

pub fn shell(directory: &Path, script: &str) -> Result<String> {
    let mut command = Command::new("/bin/sh");
    output(command.args(["-ec", script]).current_dir(directory))
}

pub fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).describe("make", path)
}

/// Removes a tree, if it exists.
pub fn clear(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).describe("remove", path)
        }
        _ => Ok(()),
    }
}

/// A store whose service runs until this is dropped.
pub struct Store {
    program: PathBuf,
    pub path: PathBuf,
}

impl Store {
    /// Makes the directory a store and starts its service.
    pub fn warm(program: &Path, path: &Path) -> Result<Store> {
        let mut init = Command::new(program);
        output(init.arg("init").arg(path))?;
        let store = Store {
            program: program.to_owned(),
            path: path.to_owned(),
        };
        store.start()?;
        Ok(store)
    }

    /// Starts the service again if it has ended, as it does when idle.
    pub fn start(&self) -> Result<()> {
        output(&mut self.command(["run", "--", "true"])).map(|_| ())
    }

    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(&self.path).args(arguments);
        command
    }

    pub fn stop(&self) -> Result<()> {
        output(&mut self.command(["service", "stop", "--abort"])).map(|_| ())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Ignore the error: the service may be stopped already, or another error is being reported.
        let _ = self.stop();
    }
}
