//! Profiles: which programs run in transactions of their own although they do not ask for any.
//!
//! A store's profiles are lines of text in its control directory, which people edit as well:
//!
//! ```text
//! # A comment.
//! [/usr/bin/make]
//! isolation = serializable
//! message = nightly build
//!
//! [rsync]
//! retry = 3
//! ```
//!
//! A section is the profile of one program, by its path or by its name wherever it is. Its lines are
//! options of `atomdir run`. `masquerade` starts such programs.

pub mod masquerade;
pub mod program;

use crate::error::Error;
use crate::output::escaped;
use crate::verbs::run as verb_run;
use atomdir::StoreLocation;
use clap::Parser;
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use std::path::Path;

/// The options of `run` that a profile can have: those that say how a transaction is made and ended,
/// and nothing that asks somebody, or that names a file.
const KEYS: [&str; 10] = [
    "isolation",
    "durability",
    "conflicts",
    "message",
    "view",
    "retry",
    "timeout",
    "max-age",
    "on-error",
    "on-conflict",
];

/// `run`, as if it had been called.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Run {
    #[command(flatten)]
    run: verb_run::Arguments,
}

/// The profile of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// An absolute path, or a name without a slash.
    pub program: String,
    /// Where it begins in the text, from 1.
    pub line: usize,
    #[serde(serialize_with = "as_map")]
    options: Vec<ProfileOption>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOption {
    key: String,
    value: String,
}

fn as_map<S: Serializer>(options: &[ProfileOption], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(options.iter().map(|option| (&option.key, &option.value)))
}

/// A line that cannot be understood, and why.
#[derive(Debug, PartialEq, Eq)]
struct BadLine {
    line: usize,
    why: String,
}

impl Profile {
    /// Whether this is the profile of a program, which is found at any of these paths.
    fn is_of(&self, paths: &[&Path]) -> bool {
        paths.iter().any(|path| match self.program.contains('/') {
            true => *path == Path::new(&self.program),
            false => path.file_name().is_some_and(|name| *name == *self.program),
        })
    }

    /// The words of the command `atomdir run` with these options.
    pub fn words(&self) -> Vec<OsString> {
        let words = self.options.iter();
        words
            .map(|ProfileOption { key, value }| format!("--{key}={value}").into())
            .collect()
    }
}

/// The profiles of a store, and the text that they are from.
pub struct Profiles {
    pub all: Vec<Profile>,
    text: String,
}

impl Profiles {
    pub fn of(store: &StoreLocation) -> Result<Profiles, Error> {
        let text = atomdir::client::profiles(store)?;
        let all = parse(&text).map_err(|BadLine { line, why }| Error::Profiles {
            file: store.control.join("profiles"),
            line,
            why,
        })?;
        Ok(Profiles { all, text })
    }

    /// The profile of the program at a path. One by path goes before one by name. The path counts as
    /// it is, and with its symbolic links resolved.
    pub fn find(&self, path: &Path) -> Option<&Profile> {
        let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let paths = [path, &resolved];
        let found = self.all.iter().filter(|profile| profile.is_of(&paths));
        found.max_by_key(|profile| profile.program.contains('/'))
    }

    /// Adds a profile, or puts it in the place of the program's old one. All other lines stay.
    pub fn add(&mut self, program: &str, options: &[ProfileOption]) -> Result<(), Error> {
        self.remove(program);
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let mut text = format!("{}{gap}[{program}]\n", self.text);
        for ProfileOption { key, value } in options {
            text.push_str(&format!("{key} = {value}\n"));
        }
        let all = parse(&text).map_err(|bad| Error::usage(bad.why))?;
        *self = Profiles { all, text };
        Ok(())
    }

    /// Removes the lines of a program's profile. Returns whether it has one.
    pub fn remove(&mut self, program: &str) -> bool {
        let mut all = self.all.iter();
        let Some(first) = all.find(|one| one.program == program) else {
            return false;
        };
        let first = first.line;
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let (before, rest) = lines.split_at(first - 1);
        let next = rest.iter().skip(1).position(|line| is_header(line));
        let after = match next {
            // The comment right above a section belongs to it.
            Some(next) => {
                let own = rest[..=next].iter().rev();
                next + 1 - own.take_while(|line| is_comment(line)).count()
            }
            None => rest.len(),
        };
        let mut text = before.concat();
        text.push_str(&rest[after..].concat());
        self.text = text.trim_end().to_owned();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.all.retain(|profile| profile.program != program);
        true
    }

    pub fn write(&self, store: &StoreLocation) -> Result<(), Error> {
        Ok(atomdir::client::change_profiles(store, &self.text)?)
    }
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

fn parse(text: &str) -> Result<Vec<Profile>, BadLine> {
    let mut all: Vec<Profile> = Vec::new();
    for (line, words) in (1..).zip(text.lines()) {
        let bad = |why: String| BadLine { line, why };
        let words = words.trim();
        if words.is_empty() || is_comment(words) {
            continue;
        }
        if is_header(words) {
            let program = words[1..].strip_suffix(']').map(str::trim);
            let program = program.ok_or_else(|| bad("']' is missing at its end".to_owned()))?;
            check_program(program).map_err(bad)?;
            if let Some(first) = all.iter().find(|profile| profile.program == program) {
                let first = first.line;
                return Err(bad(format!(
                    "'{program}' has a profile already, in line {first}"
                )));
            }
            all.push(Profile {
                program: program.to_owned(),
                line,
                options: Vec::new(),
            });
            continue;
        }
        let option = parse_option(words).map_err(bad)?;
        let Some(profile) = all.last_mut() else {
            return Err(bad(
                "it is above the first program, which is named as in [/usr/bin/make]".to_owned(),
            ));
        };
        if profile.options.iter().any(|one| one.key == option.key) {
            return Err(bad(format!("'{}' is there already", option.key)));
        }
        profile.options.push(option);
    }
    Ok(all)
}

/// Why a program cannot be named so.
pub fn check_program(program: &str) -> Result<(), String> {
    let shown = escaped(program.as_bytes());
    match program.contains('/') {
        _ if program.is_empty() || program.contains(['[', ']', '\n']) => {
            Err(format!("'{shown}' is no program: give a path, or a name"))
        }
        true if !program.starts_with('/') => Err(format!(
            "'{shown}' is a path from the current directory: give an absolute one, or a name"
        )),
        _ => Ok(()),
    }
}

/// Parses `KEY = VALUE`, or `KEY=VALUE`.
pub fn parse_option(text: &str) -> Result<ProfileOption, String> {
    let shown = escaped(text.as_bytes());
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("'{shown}' is not of the form KEY = VALUE"));
    };
    let (key, value) = (key.trim(), value.trim());
    if !KEYS.contains(&key) {
        let key = escaped(key.as_bytes());
        let keys = KEYS.join(", ");
        return Err(format!("a profile has no '{key}'; it can have {keys}"));
    }
    if value.contains('\n') {
        return Err(format!("the value of '{key}' is longer than a line"));
    }
    let words = [&*format!("--{key}={value}"), "--", "program"];
    match Run::try_parse_from(words) {
        Ok(_) => Ok(ProfileOption {
            key: key.to_owned(),
            value: value.to_owned(),
        }),
        Err(error) => Err(first_lines(&error.to_string())),
    }
}

/// What is wrong, without the advice on the command line.
fn first_lines(error: &str) -> String {
    let error = error.strip_prefix("error: ").unwrap_or(error);
    let lines = error.lines().take_while(|line| !line.is_empty());
    escaped(
        lines
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
            .as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# All of them.

# The nightly one.
[/usr/bin/make]
isolation = serializable
message = nightly = build # 7
  # More.
[ rsync ]
retry=3
";

    fn profiles(text: &str) -> Profiles {
        Profiles {
            all: parse(text).expect("well-formed"),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_profile_by_path_goes_before_one_by_name() {
        let both = profiles(&format!("[make]\n{TEXT}"));
        let of = |path| both.find(Path::new(path)).map(|found| &*found.program);
        assert_eq!(of("/usr/bin/make"), Some("/usr/bin/make"));
        assert_eq!(of("/opt/make"), Some("make"));
        assert_eq!(of("/opt/rsync"), Some("rsync"));
        assert_eq!(of("/opt/rsync/cp"), None);
        let words = both.all[1].words();
        assert_eq!(
            words,
            ["--isolation=serializable", "--message=nightly = build # 7"]
        );
    }

    #[test]
    fn changes_leave_all_other_lines_as_they_are() {
        let mut some = profiles(TEXT);
        assert!(some.remove("/usr/bin/make") && !some.remove("make"));
        assert_eq!(
            some.text,
            "# All of them.\n\n# The nightly one.\n  # More.\n[ rsync ]\nretry=3\n"
        );
        let exact = [parse_option("view=exact").expect("well-formed")];
        some.add("make", &[]).expect("added");
        some.add("make", &exact).expect("replaced");
        assert!(some.text.ends_with("retry=3\n\n[make]\nview = exact\n"));
        assert_eq!(some.text.matches("[make]").count(), 1);
        assert!(some.remove("rsync"));
        let [left] = &parse(&some.text).expect("well-formed")[..] else {
            panic!("{}", some.text);
        };
        assert_eq!((&*left.program, &*left.options), ("make", &exact[..]));
    }

    #[test]
    fn a_line_that_is_not_understood_is_named_with_its_reason() {
        for (text, line, why) in [
            ("retry = 3\n", 1, "above the first program"),
            ("\n[make\n", 2, "']' is missing"),
            ("[]\n", 1, "no program"),
            ("[bin/make]\n", 1, "absolute"),
            ("[a]\n# b\n[c]\n[a]\n", 4, "already, in line 1"),
            ("[a]\nretry\n", 2, "KEY = VALUE"),
            ("[a]\nretry = 1\nretry = 2\n", 3, "there already"),
            (
                "[a]\nask = true\n",
                2,
                "a profile has no 'ask'; it can have isolation",
            ),
            ("[a]\nisolation = strict\n", 2, "snapshot, serializable"),
            ("[a]\nretry = many\n", 2, "whole number"),
        ] {
            let bad = parse(text).expect_err(text);
            assert_eq!(bad.line, line, "{text}");
            assert!(bad.why.contains(why), "{text}: {}", bad.why);
        }
        for key in KEYS {
            let value = match key {
                "isolation" => "snapshot",
                "durability" => "lazy",
                "conflicts" => "early",
                "view" => "exact",
                "timeout" | "max-age" => "5m",
                "on-error" => "commit",
                "on-conflict" => "abort",
                _ => "3",
            };
            assert!(parse_option(&format!("{key} = {value}")).is_ok(), "{key}");
        }
    }
}
