//! A store for one test. Dropping it stops its service and removes it.

use atomdir_testing::{WAIT_UNTIL, fresh_directory};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub const ATOMDIR: &str = env!("CARGO_BIN_EXE_atomdir");

pub struct Store {
    pub path: PathBuf,
}

/// What a command printed and exited with.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Store {
    /// The store has one file, `file`, with the text "old\n".
    pub fn new(name: &str) -> Store {
        let parent = std::env::temp_dir()
            .canonicalize()
            .expect("temporary directory");
        let path = fresh_directory(&parent, &format!("cli-{name}"));
        let store = Store { path };
        fs::write(store.path.join("file"), "old\n").expect("new file");
        store.check(&["init"]);
        store
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ATOMDIR);
        command
            .args(arguments)
            .current_dir(&self.path)
            .stdin(Stdio::null());
        command.env_remove("ATOMDIR_TX");
        command
    }

    pub fn call(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().expect("atomdir starts"))
    }

    /// Runs the command, which must exit with 0, and returns what it prints.
    pub fn check(&self, arguments: &[&str]) -> String {
        let outcome = self.call(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {outcome:?}");
        outcome.out
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.check(&[&["--json"], arguments].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// Runs a script in the store's directory, with the program as `$ATOMDIR` and [`WAIT_UNTIL`].
    pub fn shell(&self, script: &str) -> Outcome {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{WAIT_UNTIL}{script}")])
            .current_dir(&self.path)
            .stdin(Stdio::null());
        command.env("ATOMDIR", ATOMDIR).env_remove("ATOMDIR_TX");
        Outcome::of(command.output().expect("sh starts"))
    }

    /// As [`on_terminal_when`](Self::on_terminal_when), with these answers.
    pub fn on_terminal(&self, line: &str, prompt: &str, answers: &str) -> Outcome {
        self.on_terminal_when(line, prompt, || answers.to_owned())
    }

    /// Runs a command line on a terminal of its own, with the program as `$ATOMDIR`. Once
    /// the prompt has been printed, calls `answers` and types what it returns.
    pub fn on_terminal_when(
        &self,
        line: &str,
        prompt: &str,
        answers: impl FnOnce() -> String,
    ) -> Outcome {
        let mut answers = Some(answers);
        let mut command = Command::new("script");
        command
            .args(["-qec", line, "/dev/null"])
            .current_dir(&self.path)
            .envs([
                ("ATOMDIR", ATOMDIR),
                ("NO_COLOR", "1"),
                ("ATOMDIR_PAGER", "cat"),
                ("SHELL", "/bin/sh"),
            ])
            .env_remove("ATOMDIR_TX")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("script starts");
        let mut input = child.stdin.take().expect("it is piped");
        let mut output = child.stdout.take().expect("it is piped");
        let mut printed = Vec::new();
        loop {
            let mut part = [0; 1024];
            match output.read(&mut part).expect("it can be read") {
                0 => break,
                count => printed.extend(&part[..count]),
            }
            let text = String::from_utf8_lossy(&printed);
            if text.contains(prompt)
                && let Some(answers) = answers.take()
            {
                input.write_all(answers().as_bytes()).expect("it reads");
            }
        }
        Outcome {
            code: child.wait().expect("it ends").code(),
            out: String::from_utf8_lossy(&printed).into_owned(),
            error: String::new(),
        }
    }

    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }

    /// Begins a transaction: its id and its view.
    pub fn begin(&self) -> (String, PathBuf) {
        let out = self.check(&["begin"]);
        let mut lines = out.lines();
        let id = lines.next().unwrap_or_default().to_owned();
        let view = Path::new(lines.next().unwrap_or_default()).to_owned();
        assert_eq!(lines.next(), None);
        (id, view)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.command(&["service", "stop", "--abort"]).output();
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Outcome {
    fn of(output: Output) -> Outcome {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Outcome {
            code: output.status.code(),
            out: text(&output.stdout),
            error: text(&output.stderr),
        }
    }
}
