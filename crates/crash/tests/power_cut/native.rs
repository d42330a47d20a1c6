//! A transaction in a native view, in which the test makes changes from outside.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use atomdir_testing::Store;

/// `atomdir run`, which commits when its standard input ends.
pub struct Native {
    run: Child,
    /// The process in the view.
    inside: u32,
}

impl Native {
    pub fn run(store: &Store, options: &[&str]) -> Self {
        let script = "echo $$; read line || true";
        let words = ["run", "--view", "native"].iter().chain(options);
        let mut command = store.command(words.chain(&["--", "/bin/sh", "-ec", script]));
        let mut run = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = run.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("read");
        let inside = line.trim().parse().expect("the shell says its number");
        Self { run, inside }
    }

    /// The view's root, through the mount namespace of the process within.
    pub fn root(&self) -> PathBuf {
        format!("/proc/{}/cwd", self.inside).into()
    }

    pub fn commit(mut self) {
        drop(self.run.stdin.take());
        let status = self.run.wait().expect("it ends");
        assert!(status.success(), "the run ends with {status}");
    }
}
