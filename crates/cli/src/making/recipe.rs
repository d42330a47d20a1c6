//! The shell that make runs for a recipe.
//!
//! A recipe becomes one transaction, by `atomdir run`. In it, each line has a shell of its own, as
//! in a make without `.ONESHELL`, and `-` before a line ignores its error. These recipes are
//! different:
//! - If the project sets `.ONESHELL` itself, the recipe goes to the project's shell as a whole.
//! - A recipe that calls `$(MAKE)` is no transaction, since the recipes of that make are.
//!
//! Make keeps the signs before the first line to itself. So we cannot know whether an error in
//! that line is to be ignored, and end the recipe there. If make then goes on to other recipes, it
//! has ignored the error, and takes the target for made: then no other recipe is run, and
//! `atomdir make` fails.

use super::{CUT_SHORT, MAKE};
use std::env::{self, var_os};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The first argument for a recipe; the options of `atomdir run` follow, `--`, and the recipe.
/// Recipes also run scripts by `$(SHELL)`, and then there is no such argument.
pub const MARKER: &str = "--atomdir-recipe";

/// The shell that the project has set, and its arguments before a line.
pub const SHELL_VARIABLE: &str = "ATOMDIR_RECIPE_SHELL";
pub const FLAGS_VARIABLE: &str = "ATOMDIR_RECIPE_SHELLFLAGS";
/// Not empty if the project sets `.ONESHELL`.
pub const WHOLE_VARIABLE: &str = "ATOMDIR_RECIPE_IS_WHOLE";
/// What the recipe is for. Not set for make's function `$(shell)`.
pub const TARGET_VARIABLE: &str = "ATOMDIR_RECIPE_TARGET";

/// Variables that recipes do not see. They see the shell, for `$(SHELL)`.
const VARIABLES: [&str; 3] = [FLAGS_VARIABLE, WHOLE_VARIABLE, TARGET_VARIABLE];

/// Runs a recipe's lines. Arguments: where to note that the recipe was cut short, the target, the
/// shell and its flags; then for each line whether its error is ignored, and the line.
const LINES: &str = "\
set -f
cut_short=$1 target=$2 shell=$3 flags=$4
shift 4
is_first=yes
while [ $# -gt 0 ]; do
    code=0
    \"$shell\" $flags \"$2\" || code=$?
    if [ $code != 0 ]; then
        if [ \"$1\" = must-succeed ]; then
            if [ $is_first = yes ] && [ $# -gt 2 ]; then
                printf '%s\\n' \"$target\" >> \"$cut_short\"
            fi
            exit $code
        fi
        printf '%s\\n' \"atomdir make: [$target] Error $code (ignored)\" >&2
    fi
    is_first=no
    shift 2
done";

/// Names of shells before whose lines make removes its signs, even with `.ONESHELL`.
const POSIX_SHELLS: [&str; 7] = ["sh", "bash", "ksh", "rksh", "zsh", "ash", "dash"];

/// A line of a recipe.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    must_succeed: bool,
    text: Vec<u8>,
}

/// Runs what make asks its shell for. Returns only if that fails.
pub fn run(directory: &Path, words: &[OsString]) -> io::Error {
    let shell = var_os(SHELL_VARIABLE).unwrap_or_else(|| "/bin/sh".into());
    let split = words.iter().position(|word| word == "--");
    let (Some(split), true) = (split, words.first().is_some_and(|word| word == MARKER)) else {
        return Command::new(shell).args(words).exec();
    };
    let options = &words[1..split];
    let script = words[split + 1..].join(OsStr::new(" "));
    let flags = var_os(FLAGS_VARIABLE).unwrap_or_else(|| "-c".into());
    let Some(target) = var_os(TARGET_VARIABLE).filter(|target| !target.is_empty()) else {
        let flags = flags.as_bytes().split(u8::is_ascii_whitespace);
        let flags = flags.filter(|flag| !flag.is_empty()).map(OsStr::from_bytes);
        return Command::new(shell).args(flags).arg(script).exec();
    };
    let cut_short = directory.join(CUT_SHORT);
    if rustix::fs::stat(&cut_short).is_ok() && !make_has_flag(b'k') {
        return io::Error::other("no recipe is run after one that was cut short");
    }
    let mut lines: Vec<OsString> = vec![
        "/bin/sh".into(),
        "-c".into(),
        LINES.into(),
        "recipe".into(),
        cut_short.into(),
        target.clone(),
        shell.clone(),
        flags,
    ];
    for line in lines_of(script.as_bytes(), &shell) {
        let must_succeed = line.must_succeed && !make_has_flag(b'i');
        lines.push(
            if must_succeed {
                "must-succeed"
            } else {
                "may-fail"
            }
            .into(),
        );
        lines.push(OsString::from_vec(line.text));
    }
    let calls_make = contains(
        script.as_bytes(),
        directory.join(MAKE).as_os_str().as_bytes(),
    );
    let mut command = if calls_make {
        Command::new(&lines[0])
    } else {
        let mut label = OsString::from("make ");
        label.push(&target);
        let mut run = Command::new("/proc/self/exe");
        run.args(["run", "--quiet"]).args(options).arg("-m");
        run.arg(label).arg("--").arg(&lines[0]);
        run
    };
    command.args(&lines[1..]);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.exec()
}

fn lines_of(script: &[u8], shell: &OsStr) -> Vec<Line> {
    if var_os(WHOLE_VARIABLE).is_none_or(|file| file.is_empty()) {
        return split(script);
    }
    let name = Path::new(shell).file_name().and_then(OsStr::to_str);
    let text = match name {
        Some(name) if POSIX_SHELLS.contains(&name) => {
            let plain: Vec<Vec<u8>> = split(script).into_iter().map(|line| line.text).collect();
            plain.join(&b'\n')
        }
        _ => script.to_vec(),
    };
    vec![Line {
        must_succeed: true,
        text,
    }]
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
        let is_sign = |byte: &u8| b"@+- \t".contains(byte);
        let signs = whole.iter().take_while(|byte| is_sign(byte)).count();
        if signs < whole.len() {
            lines.push(Line {
                must_succeed: !whole[..signs].contains(&b'-'),
                text: whole[signs..].to_vec(),
            });
        }
    }
    lines
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
