//! The shell that make runs for a recipe.
//!
//! A recipe becomes one transaction, by `atomdir run`. In it, each line has a shell of its own, as
//! in a make without `.ONESHELL`, and `-` before a line ignores its error. These recipes are
//! different:
//! - If the project sets `.ONESHELL` itself, the recipe goes to the project's shell as a whole.
//! - A recipe that calls `$(MAKE)` is no transaction, since the recipes of that make are.
//!
//! - If make only asks what there is to do (`-n`, `-q`, `-t`), it still runs a recipe if one
//!   of its lines calls `$(MAKE)` or has the sign `+`. We run only those lines.
//!
//! Make keeps the signs before the first line to itself, and applies them to the whole recipe. So we
//! cannot know whether a failure is ignored. We note recipes that have failed before their last
//! line. If their make then goes on to other recipes, or ends well, it has ignored the failure and
//! takes the target for made: then it runs no other recipe, and it fails at its end.

use super::MAKE;
use crate::files;
use rustix::fs::CWD;
use rustix::process::{Pid, getppid};
use std::env::{self, var_os};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first argument for a recipe; the options of `atomdir run` follow, `--`, and the recipe.
/// Recipes also run scripts by `$(SHELL)`, and then there is no such argument.
pub const MARKER: &str = "--atomdir-recipe";

/// The shell that the project has set, and its arguments before a line.
pub const SHELL_VARIABLE: &str = "ATOMDIR_RECIPE_SHELL";
pub const FLAGS_VARIABLE: &str = "ATOMDIR_RECIPE_SHELLFLAGS";
/// The project's makefiles.
pub const MAKEFILES_VARIABLE: &str = "ATOMDIR_RECIPE_MAKEFILES";
/// What the recipe is for. Not set for make's function `$(shell)`.
pub const TARGET_VARIABLE: &str = "ATOMDIR_RECIPE_TARGET";

/// Variables that recipes do not see. They see the shell, for `$(SHELL)`.
const VARIABLES: [&str; 3] = [FLAGS_VARIABLE, MAKEFILES_VARIABLE, TARGET_VARIABLE];

/// Runs a recipe's lines. Arguments: where to note that the recipe was cut short, the target, the
/// shell with its flags; then for each line whether its error is ignored, and the line.
const LINES: &str = "\
set -f
cut_short=$1 target=$2 shell=$3
shift 3
while [ $# -gt 0 ]; do
    code=0
    $shell \"$2\" || code=$?
    if [ $code != 0 ]; then
        if [ \"$1\" = must-succeed ]; then
            if [ -n \"$cut_short\" ]; then
                printf '%s\\n' \"$target\" >> \"$cut_short\"
            fi
            exit $code
        fi
        printf '%s\\n' \"atomdir make: [$target] Error $code (ignored)\" >&2
    fi
    shift 2
done";

/// Names of shells before whose lines make removes its signs, even with `.ONESHELL`.
const POSIX_SHELLS: [&str; 7] = ["sh", "bash", "ksh", "rksh", "zsh", "ash", "dash"];

/// A line of a recipe.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    must_succeed: bool,
    /// It has the sign `+`: run, whatever make was called for.
    always: bool,
    text: Vec<u8>,
}

/// Where a make's recipes that were cut short are noted.
pub fn note_of(directory: &Path, make: Pid) -> PathBuf {
    directory.join(format!("cut-short.{}", make.as_raw_nonzero()))
}

/// Runs what make asks its shell for. Returns only if that fails.
pub fn run(directory: &Path, words: &[OsString]) -> io::Error {
    let shell = var_os(SHELL_VARIABLE).unwrap_or_else(|| "/bin/sh".into());
    let marker = words.first().is_some_and(|word| word == MARKER);
    let Some(split) = words
        .iter()
        .position(|word| word == "--")
        .filter(|_| marker)
    else {
        return plain(&shell, words);
    };
    let (options, script) = (&words[1..split], words[split + 1..].join(OsStr::new(" ")));
    let mut command = shell;
    command.push(" ");
    command.push(var_os(FLAGS_VARIABLE).unwrap_or_else(|| "-c".into()));
    let Some(target) = var_os(TARGET_VARIABLE).filter(|target| !target.is_empty()) else {
        return plain(&command, &[script]);
    };
    let mut note = getppid().map_or_else(PathBuf::new, |make| note_of(directory, make));
    if rustix::fs::stat(&note).is_ok() && !make_has_flag(b'k') {
        return io::Error::other("no recipe is run after one that was cut short");
    }
    let program = directory.join(MAKE).into_os_string().into_vec();
    let calls_make = |text: &[u8]| contains(text, &program);
    let is_asked_only = b"nqt".iter().any(|flag| make_has_flag(*flag));
    let lines = lines_of(script.as_bytes(), &command).into_iter();
    let lines = lines.filter(|line| !is_asked_only || line.always || calls_make(&line.text));
    let lines: Vec<Line> = lines.collect();
    if lines.len() == 1 {
        // Make knows by the line's exit code that it is undone.
        note = PathBuf::new();
    }
    let mut started = match is_asked_only || calls_make(script.as_bytes()) {
        true => Command::new("/bin/sh"),
        false => {
            let mut run = Command::new("/proc/self/exe");
            let mut label = OsString::from("make ");
            label.push(&target);
            run.args(["run", "--quiet", "--on-conflict=abort"]);
            run.args(options).arg("-m").arg(label);
            run.args(["--", "/bin/sh"]);
            run
        }
    };
    started.args(["-c", LINES, "recipe"]);
    started.arg(note).arg(target).arg(command);
    for line in lines {
        let must_succeed = line.must_succeed && !make_has_flag(b'i');
        started.arg(if must_succeed {
            "must-succeed"
        } else {
            "may-fail"
        });
        started.arg(OsString::from_vec(line.text));
    }
    for variable in VARIABLES {
        started.env_remove(variable);
    }
    started.exec()
}

/// Runs the shell, which is a program and its first arguments, as make has them.
fn plain(shell: &OsStr, words: &[OsString]) -> io::Error {
    let parts = shell.as_bytes().split(u8::is_ascii_whitespace);
    let mut parts = parts.filter(|part| !part.is_empty()).map(OsStr::from_bytes);
    let program = parts.next().unwrap_or(OsStr::new("/bin/sh"));
    Command::new(program).args(parts).args(words).exec()
}

fn lines_of(script: &[u8], shell: &OsStr) -> Vec<Line> {
    let makefiles = var_os(MAKEFILES_VARIABLE).unwrap_or_default();
    let makefiles = makefiles.as_bytes().split(|byte| *byte == b' ');
    let mut makefiles = makefiles.filter(|name| !name.is_empty());
    if !makefiles.any(|name| files::read_at(CWD, name).is_ok_and(|text| sets_one_shell(&text))) {
        return split(script);
    }
    let program = shell.as_bytes().split(|byte| *byte == b' ').next();
    let name = program.map(|program| Path::new(OsStr::from_bytes(program)).file_name());
    let name = name.flatten().and_then(OsStr::to_str);
    let text = match name {
        Some(name) if POSIX_SHELLS.contains(&name) => {
            let lines = script.split(|byte| *byte == b'\n');
            let lines: Vec<&[u8]> = lines.map(|line| &line[signs_before(line)..]).collect();
            lines.join(&b'\n')
        }
        _ => script.to_vec(),
    };
    vec![Line {
        must_succeed: true,
        always: false,
        text,
    }]
}

/// Whether a makefile has a rule for `.ONESHELL`.
fn sets_one_shell(makefile: &[u8]) -> bool {
    makefile.split(|byte| *byte == b'\n').any(|line| {
        let targets = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let mut targets = targets.split(u8::is_ascii_whitespace);
        !line.starts_with(b"\t") && targets.any(|target| target == b".ONESHELL")
    })
}

/// Splits a recipe as make does: a backslash before the end of a line continues it, and the signs
/// before each line are make's.
fn split(script: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    for piece in script.split(|byte| *byte == b'\n') {
        line.extend(piece);
        let backslashes = piece.iter().rev().take_while(|byte| **byte == b'\\');
        if backslashes.count() % 2 == 1 {
            line.push(b'\n');
            continue;
        }
        let whole = std::mem::take(&mut line);
        let (signs, text) = whole.split_at(signs_before(&whole));
        if !text.is_empty() {
            lines.push(Line {
                must_succeed: !signs.contains(&b'-'),
                always: signs.contains(&b'+'),
                text: text.to_vec(),
            });
        }
    }
    lines
}

/// The length of the signs and blanks before a line.
fn signs_before(line: &[u8]) -> usize {
    let signs = line.iter().take_while(|byte| b"@+- \t".contains(byte));
    signs.count()
}

/// Whether make was called with this option of one letter.
fn make_has_flag(letter: u8) -> bool {
    let flags = env::var_os("MAKEFLAGS").unwrap_or_default();
    let letters = flags.as_bytes().split(|byte| *byte == b' ').next();
    letters.is_some_and(|letters| !letters.starts_with(b"-") && letters.contains(&letter))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(must_succeed: bool, text: &str) -> Line {
        Line {
            must_succeed,
            always: text == "five",
            text: text.into(),
        }
    }

    #[test]
    fn recipe_is_split_into_lines() {
        let script = b"one two\n\t@- three \\\n four\\\\\n\n  \n+-five";
        let expected = [
            line(true, "one two"),
            line(false, "three \\\n four\\\\"),
            line(false, "five"),
        ];
        assert_eq!(split(script), expected);
    }
}
