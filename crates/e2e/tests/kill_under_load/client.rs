//! A client that may be killed while it runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atomdir_testing::{wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// The running client, for the thread that kills it. Nobody reaps its process while this
/// is locked, so its number cannot pass to another process.
#[derive(Debug, Default)]
pub struct Victim {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    killed: Killed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Killed {
    pub client: bool,
    /// The command was still running when the client was dead, so the client had not
    /// requested the commit.
    pub before_commit: bool,
    pub command: bool,
}

#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub killed: Killed,
    pub stdout: String,
    pub stderr: String,
}

impl Victim {
    /// Runs the client to its end. Its output goes to files, since a command that outlives it
    /// would keep a pipe open.
    pub fn run(&self, mut command: Command, outputs: &Path) -> Ended {
        let output = |name: &str| outputs.with_extension(name);
        // Each client gets new files: a command that outlived an earlier client still writes
        // to that client's files.
        let create = |name: &str| {
            let _ = fs::remove_file(output(name));
            File::create(output(name)).expect("made")
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(create("stdout"))
            .stderr(create("stderr"))
            .spawn()
            .expect("started");
        *self.lock() = Some(Running {
            child,
            killed: Killed::default(),
        });
        wait_for("the end of the client", || {
            let mut running = self.lock();
            let present = running.as_mut().expect("set above");
            let status = present.child.try_wait().expect("asked")?;
            let killed = present.killed;
            *running = None;
            let read = |name: &str| fs::read_to_string(output(name)).unwrap_or_default();
            Some(Ended {
                status,
                killed,
                stdout: read("stdout"),
                stderr: read("stderr"),
            })
        })
    }

    /// Returns whether a client was running.
    pub fn kill_client(&self) -> bool {
        let mut running = self.lock();
        let Some(running) = running.as_mut() else {
            return false;
        };
        let commands: Vec<u32> = commands(running.child.id());
        running.child.kill().expect("it is our child");
        // The client's end closes its connection.
        wait_until("the death of the client", || is_dead(running.child.id()));
        running.killed.client = true;
        running.killed.before_commit = commands.iter().any(|command| !is_dead(*command));
        true
    }

    /// Returns whether a command was running.
    pub fn kill_command(&self) -> bool {
        let mut running = self.lock();
        let Some(running) = running.as_mut() else {
            return false;
        };
        let mut any = false;
        for command in commands(running.child.id()) {
            let pid = Pid::from_raw(command as i32).expect("no process has the number 0");
            any |= kill_process(pid, Signal::KILL).is_ok();
        }
        running.killed.command |= any;
        any
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The commands that the client runs in its transaction. A service may be its child, too.
fn commands(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("readable").flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| stat(*process).is_some_and(|(_, of)| of == parent))
        .filter(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline"));
            line.is_ok_and(|line| line.starts_with(b"/bin/sh\0"))
        })
        .collect()
}

fn is_dead(process: u32) -> bool {
    stat(process).is_none_or(|(state, _)| state == 'Z' || state == 'X')
}

/// The process's state and parent, or `None` if there is no such process.
fn stat(process: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
