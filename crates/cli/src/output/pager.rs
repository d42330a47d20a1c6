//! Long results on a terminal go through a pager, as git's do: `$ATOMDIR_PAGER`,
//! `$PAGER` or less.
//!
//! While it runs, standard output is its input. So nothing that prints needs to know.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stdout};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// less ends at once if everything fits on the screen, shows colours, and leaves the
/// text on the screen.
const LESS_OPTIONS: &str = "FRX";
/// As a shell says that it could not start a command.
const NOT_STARTED: [Option<i32>; 2] = [Some(126), Some(127)];

pub struct Pager {
    program: OsString,
    child: Child,
    terminal: OwnedFd,
}

impl Pager {
    /// `None`: the user wants none.
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
        // An interrupt is for the pager, which goes on: we must not end before it.
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

    /// Waits until the user has read everything. What went wrong with the pager, in
    /// words, if it could not be started.
    pub fn end(mut self) -> io::Result<Option<String>> {
        // That was the only writing end: the pager sees that there is no more.
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
