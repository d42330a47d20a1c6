//! Profiles: which programs run in transactions of their own although they do not ask for any.
//!
//! `atomdir::client::profiles` knows the form of the file, and here is what its options mean.
//! `masquerade` starts such programs.

pub mod masquerade;
pub mod program;

use crate::error::Error;
use crate::verbs::run as verb_run;
use atomdir::StoreLocation;
use atomdir::client::profiles::{
    BadLine, FILES_WHOLE, Profile, ProfileOption, change_profiles, is_comment, is_header,
    parse_profiles, profile_of, profiles, split_option,
};
use clap::Parser;
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

/// The words of the command `atomdir run` with the options of a profile.
pub fn words(profile: &Profile) -> Vec<OsString> {
    let words = profile.options.iter();
    words
        .map(|ProfileOption { key, value }| format!("--{key}={value}").into())
        .collect()
}

/// Whether the profile is for runs of a program.
pub fn is_for_runs(profile: &Profile) -> bool {
    profile.value(FILES_WHOLE).is_none()
}

/// The profiles of a store, and the text that they are from.
pub struct Profiles {
    pub all: Vec<Profile>,
    text: String,
}

impl Profiles {
    pub fn of(store: &StoreLocation) -> Result<Profiles, Error> {
        let text = profiles(store)?;
        let all = parse(&text).map_err(|BadLine { line, why }| Error::Profiles {
            file: store.control.join("profiles"),
            line,
            why,
        })?;
        Ok(Profiles { all, text })
    }

    /// The profile for runs of the program at a path.
    pub fn find(&self, path: &Path) -> Option<&Profile> {
        profile_of(&self.all, path, is_for_runs)
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
        Ok(change_profiles(store, &self.text)?)
    }
}

fn parse(text: &str) -> Result<Vec<Profile>, BadLine> {
    parse_profiles(text, check_option)
}

/// Parses an option on the command line.
pub fn parse_option(text: &str) -> Result<ProfileOption, String> {
    let option = split_option(text)?;
    if option.key != FILES_WHOLE {
        check_option(&option)?;
    }
    Ok(option)
}

/// Checks an option of `run`. The error says why it is refused.
fn check_option(ProfileOption { key, value }: &ProfileOption) -> Result<(), String> {
    if !KEYS.contains(&&**key) {
        let keys = KEYS.join(", ");
        return Err(format!(
            "a profile has no '{key}'; it can have {keys}; or {FILES_WHOLE}"
        ));
    }
    let words = [&*format!("--{key}={value}"), "--", "program"];
    let parsed = Run::try_parse_from(words);
    parsed
        .map(drop)
        .map_err(|error| first_lines(&error.to_string()))
}

/// The first paragraph of an error of the command line, without the advice that follows.
fn first_lines(error: &str) -> String {
    let error = error.strip_prefix("error: ").unwrap_or(error);
    let lines = error.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
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

    fn of(text: &str) -> Profiles {
        Profiles {
            all: parse(text).expect("well-formed"),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_profile_by_path_goes_before_one_by_name() {
        let both = of(&format!("[make]\n{TEXT}"));
        let find = |path| both.find(Path::new(path)).map(|found| &*found.program);
        assert_eq!(find("/usr/bin/make"), Some("/usr/bin/make"));
        assert_eq!(find("/opt/make"), Some("make"));
        assert_eq!(find("/opt/rsync"), Some("rsync"));
        assert_eq!(find("/opt/rsync/cp"), None);
        let words = words(&both.all[1]);
        assert_eq!(
            words,
            ["--isolation=serializable", "--message=nightly = build # 7"]
        );
    }

    #[test]
    fn changes_leave_all_other_lines_as_they_are() {
        let mut some = of(TEXT);
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
            (
                "[a]\nfiles-whole = *\nretry = 1\n",
                3,
                "'retry' is for runs",
            ),
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
