//! Long results on a terminal go through a pager, as git's do: `$ATOMDIR_PAGER`,
//! `$PAGER` or less.
//!
//! While it runs, our standard output is its input, so code that prints needs no change.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stdout};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// With these, less exits at once if everything fits on the screen, shows colours,
/// and leaves the text on the screen.
const LESS_OPTIONS: &str = "FRX";
/// The exit codes by which a shell reports that it could not start a command.
const NOT_STARTED: [Option<i32>; 2] = [Some(126), Some(127)];

pub struct Pager {
    program: OsString,
    child: Child,
    terminal: OwnedFd,
}

impl Pager {
    /// Returns `None` if the user wants no pager.
    pub fn start() -> io::Result<Option<Pager>> {
        let variables = ["ATOMDIR_PAGER", "PAGER"];
        let program = match variables.into_iter().find_map(std::env::var_os) {
            Some(chosen) => chosen,
            None if is_on_path("less") => "less".into(),
            None => return Ok(None),
        };
        if program.is_empty() || program == "cat" {
            return Ok(None);
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&program).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", LESS_OPTIONS);
        }
        let terminal = fcntl_dupfd_cloexec(stdout(), 3)?;
        let mut child = command.spawn()?;
        // An interrupt is for the pager, which continues, so it must not end us first.
        // SAFETY: no handler runs.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        if let Some(input) = child.stdin.take() {
            dup2_stdout(OwnedFd::from(input))?;
        }
        Ok(Some(Pager {
            program,
            child,
            terminal,
        }))
    }

    /// Waits until the user has read everything. If the pager could not be started,
    /// returns the reason in words.
    pub fn end(mut self) -> io::Result<Option<String>> {
        // This closes the only writing end, so the pager sees the end of its input.
        dup2_stdout(&self.terminal)?;
        let status = self.child.wait()?;
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let program = self.program.to_string_lossy();
        Ok(NOT_STARTED.contains(&status.code()).then(|| {
            format!("cannot start the pager '{program}'; `--no-pager` prints without one")
        }))
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
