//! Runs the command on a terminal and answers its questions.

use crate::store::Store;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};

/// A command line on a terminal of its own, run by script(1).
pub struct OnTerminal {
    script: Child,
    input: Option<ChildStdin>,
    printed: String,
    /// How many bytes of `printed` `wait_for` has passed.
    seen: usize,
}

impl OnTerminal {
    /// `arguments` is a part of a line for the shell.
    pub fn start(store: &Store, arguments: &str) -> OnTerminal {
        OnTerminal::start_under(store, "", arguments)
    }

    /// The command is run by `runner`, a part of a line for the shell as well.
    pub fn start_under(store: &Store, runner: &str, arguments: &str) -> OnTerminal {
        let atomdir = store.command(["version"]);
        // The parent of the test program may ignore SIGHUP.
        let line = format!(
            "exec env --default-signal=HUP {runner} {} -C {} {arguments}",
            atomdir.get_program().display(),
            store.path().display()
        );
        let mut command = std::process::Command::new("script");
        store.user().dress(&mut command);
        command
            .args(["-qec", &line, "/dev/null"])
            .current_dir("/")
            .env("NO_COLOR", "1")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = command.spawn().expect("script starts");
        OnTerminal {
            input: script.stdin.take(),
            script,
            printed: String::new(),
            seen: 0,
        }
    }

    pub fn type_in(&mut self, text: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(text.as_bytes()).expect("it reads");
    }

    /// Waits until the prompt is printed after those that were waited for before.
    pub fn wait_for(&mut self, prompt: &str) {
        while !self.printed[self.seen..].contains(prompt) {
            let mut part = [0; 512];
            let output = self.script.stdout.as_mut().expect("it is piped");
            let count = output.read(&mut part).expect("it can be read");
            assert_ne!(count, 0, "no {prompt:?}: {}", self.printed);
            self.printed += &String::from_utf8_lossy(&part[..count]);
        }
        let rest = &self.printed[self.seen..];
        self.seen += rest.find(prompt).unwrap_or(0) + prompt.len();
    }

    /// Waits until the command ends. Returns everything that it has printed.
    pub fn end(mut self) -> String {
        let mut output = self.script.stdout.take().expect("it is piped");
        let mut rest = Vec::new();
        // Some systems report the end of a terminal as an error.
        let _ = output.read_to_end(&mut rest);
        self.script.wait().expect("it ends");
        self.printed += &String::from_utf8_lossy(&rest);
        self.printed
    }

    /// Closes the terminal.
    pub fn close(mut self) {
        self.script.kill().expect("it has not ended");
        self.script.wait().expect("it ends");
    }
}
