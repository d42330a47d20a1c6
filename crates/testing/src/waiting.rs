//! A command that waits in its view.

use crate::store::Store;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A command that waits in its view for the end of its input.
#[derive(Debug)]
pub struct Waiting {
    pub child: Child,
    input: Option<ChildStdin>,
    /// Kept open, since the command may print more.
    output: BufReader<ChildStdout>,
    /// The first line of its output.
    pub said: String,
}

impl Waiting {
    /// Starts `verb -- sh -c` with a script that does `first`, which must print a line, waits, and
    /// then does `then`.
    pub fn start(store: &Store, verb: &[&str], first: &str, then: &str) -> Self {
        let script = format!("{first}; read line; {then}");
        let mut command = store.command(verb.iter().chain(&["--", "sh", "-c", &script]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut said = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        output.read_line(&mut said).expect("it says something");
        let said = said.trim().to_owned();
        Self {
            input: child.stdin.take(),
            child,
            output,
            said,
        }
    }

    pub fn process(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("not 0")
    }

    /// Ends the command and returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.let_go();
        self.code()
    }

    /// Lets the command go on to its end.
    pub fn let_go(&mut self) {
        drop(self.input.take());
    }

    /// What the command prints after its first line, until no process has its output open.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("it is text");
        rest
    }

    /// Waits until the command ends by itself, and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }

    /// Kills the process that was started.
    pub fn kill(&mut self) {
        kill_process(self.process(), Signal::KILL).expect("it is there");
        self.code();
    }
}
