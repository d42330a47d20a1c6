//! Finding programs and running them to their end.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::scratch::Scratch;
use crate::user::User;

/// How a command ended and what it printed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The exit code as a shell gives it: 128 plus the signal's number if it was killed.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub command: String,
}

impl Outcome {
    /// Panics if the output shows the number of an error, as io::Error's own text does.
    #[track_caller]
    pub fn from_output(command: String, output: Output) -> Self {
        let signal = || output.status.signal().map_or(-1, |signal| 128 + signal);
        let outcome = Self {
            code: output.status.code().unwrap_or_else(signal),
            stdout: output.stdout,
            stderr: output.stderr,
            command,
        };
        let has_number = |bytes: &[u8]| bytes.windows(9).any(|part| part == b"(os error");
        assert!(
            !has_number(&outcome.stdout) && !has_number(&outcome.stderr),
            "shows the number of an error\n{outcome}"
        );
        outcome
    }

    /// Panics and shows the whole output unless the exit code is `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert!(self.code == code, "expected exit code {code}\n{self}");
        self
    }

    /// Like [`Outcome::expect`], where the design allows several codes.
    #[track_caller]
    pub fn expect_one_of(self, codes: &[i32]) -> Self {
        assert!(
            codes.contains(&self.code),
            "expected an exit code of {codes:?}\n{self}"
        );
        self
    }

    /// Panics unless standard error contains each of the texts, in upper or lower case.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        let said = self.error_text().to_lowercase();
        for text in texts {
            assert!(
                said.contains(&text.to_lowercase()),
                "does not say {text:?}\n{self}"
            );
        }
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command: {}", self.command)?;
        writeln!(f, "exit code: {}", self.code)?;
        writeln!(f, "standard output:\n{}", tail(&self.text()))?;
        write!(f, "standard error:\n{}", tail(&self.error_text()))
    }
}

/// The end of a text: a failing build prints a lot, and the end shows the reason.
fn tail(text: &str) -> String {
    const LINES_MAX: usize = 60;
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(LINES_MAX);
    let shown = lines[skipped..].join("\n");
    if skipped > 0 {
        format!("({skipped} lines before)\n{shown}")
    } else {
        shown
    }
}

/// Runs the command without input to its end.
#[track_caller]
pub fn capture_output(command: &mut Command) -> Outcome {
    let shown = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    Outcome::from_output(shown, output)
}

/// Runs a shell script in `directory`, outside any transaction, and expects it to
/// succeed.
#[track_caller]
pub fn shell(directory: &Path, script: &str) -> Outcome {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-ec")
        .arg(script)
        .current_dir(directory)
        .env("LC_ALL", "C");
    capture_output(&mut command).expect(0)
}

/// Likewise, as a user.
#[track_caller]
pub fn shell_as(user: &User, directory: &Path, script: &str) -> Outcome {
    let mut command = Command::new("/bin/sh");
    user.dress(&mut command);
    capture_output(command.args(["-ec", script]).current_dir(directory)).expect(0)
}

/// A script in which `$A` is the program.
pub fn script(text: &str) -> String {
    format!("A='{}'\n{text}", binary().display())
}

/// Runs `atomdir` as root, without naming a store.
#[track_caller]
pub fn atomdir<A: AsRef<OsStr>>(
    scratch: &Scratch,
    arguments: impl IntoIterator<Item = A>,
) -> Outcome {
    let mut command = Command::new(binary());
    User::root(scratch.path()).dress(&mut command);
    capture_output(command.current_dir("/").args(arguments))
}

/// Runs `atomdir` as a user in a directory, without naming a store.
#[track_caller]
pub fn atomdir_in<A: AsRef<OsStr>>(
    user: &User,
    directory: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Outcome {
    let mut command = Command::new(binary());
    user.dress(&mut command);
    capture_output(command.current_dir(directory).args(arguments))
}

/// `atomdir VERB --system`, for the system below a directory, as a user.
pub fn system_command(user: &User, root: &Path, verb: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    user.dress(&mut command);
    command.args(verb).arg("--system").arg("--root");
    command.arg(root).args(words).current_dir("/");
    command
}

/// The `atomdir` under test: `ATOMDIR_BIN`, or the one built next to the test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("ATOMDIR_BIN") {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "ATOMDIR_BIN is {}, and no file is there",
            path.display()
        );
        return path;
    }
    built("atomdir").unwrap_or_else(|| {
        panic!(
            "no atomdir binary next to the tests; build it with `cargo build -p atomdir-cli`, \
             or name one in ATOMDIR_BIN"
        )
    })
}

/// A helper program of this package, built along with the tests.
pub fn helper(name: &str) -> PathBuf {
    built(name).unwrap_or_else(|| {
        panic!("no helper program {name}; build it with `cargo build -p atomdir-e2e --bins`")
    })
}

/// Looks in the test's own profile first, then in the other one.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/PROFILE/deps/TEST
    let profile = test.parent()?.parent()?;
    let target = profile.parent()?;
    [
        profile.to_owned(),
        target.join("release"),
        target.join("debug"),
    ]
    .into_iter()
    .map(|directory| directory.join(name))
    .find(|path| path.is_file())
}
