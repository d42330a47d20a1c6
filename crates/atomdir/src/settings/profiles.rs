//! A store's profiles: lines of text in its control directory, which people edit as well.
//!
//! ```text
//! # A comment.
//! [/usr/bin/make]
//! isolation = serializable
//!
//! [rsync]
//! retry = 3
//! ```
//!
//! A section is the profile of one program, by its path or by its name wherever it is; `*` stands for
//! all programs. Most lines of a section are options of `atomdir run`: how programs run that have a
//! profile is the command's. Everybody whom the store admits may read the file.

use super::file::{TextFile, open_control};
use super::{ReadError, SettingsError, require_owner};
use crate::StoreLocation;
use crate::resolvers::Patterns;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsFd;
use std::path::Path;

const FILE: TextFile = TextFile {
    name: "profiles",
    name_new: "profiles.new",
    mode: Mode::RUSR
        .union(Mode::WUSR)
        .union(Mode::RGRP)
        .union(Mode::ROTH),
};

/// Stands for every program.
const ALL: &str = "*";

/// The key that names the files that change whole under a guard.
pub const FILES_WHOLE: &str = "files-whole";

/// The key that a profile with [`FILES_WHOLE`] can have besides. There is none for durability: a lazy
/// commit is seen late by programs outside transactions, also by the one that has closed the file.
const MESSAGE: &str = "message";

/// Reads the text of a store's profiles; empty if it has none.
pub fn profiles(store: &StoreLocation) -> Result<String, SettingsError> {
    let control = open_control(store, OFlags::PATH)?;
    FILE.read(&control).map_err(|error| match error.of(store) {
        SettingsError::Io { store, errno, .. } => SettingsError::Io {
            store,
            operation: "read the profiles among",
            errno,
        },
        other => other,
    })
}

/// Reads the text of the profiles in a control directory.
pub fn profiles_in(control: impl AsFd) -> Result<String, ReadError> {
    FILE.read(control)
}

/// Replaces the text of a store's profiles; the caller must be the store's owner or root.
pub fn change_profiles(store: &StoreLocation, text: &str) -> Result<(), SettingsError> {
    require_owner(store)?;
    FILE.change(store, text)
}

/// The profile of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// An absolute path, a name without a slash, or `*`.
    pub program: String,
    /// Where it begins in the text, from 1.
    pub line: usize,
    /// In the order of the lines.
    pub options: Vec<ProfileOption>,
}

/// One line of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOption {
    /// The text before the `=`.
    pub key: String,
    /// The text after the `=`.
    pub value: String,
}

/// A line that cannot be understood, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// Without the line's number.
    pub why: String,
}

impl Profile {
    /// The value of an option.
    pub fn value(&self, key: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options
            .find(|one| one.key == key)
            .map(|one| one.value.as_str())
    }

    /// Whether any file that the program writes is to change whole.
    pub fn wants_whole(&self) -> bool {
        self.value(FILES_WHOLE).is_some()
    }

    /// Whether a file that the program writes is to change whole. `path`: from the store's root.
    pub fn has_whole(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let patterns = self.value(FILES_WHOLE).map(Patterns::parse);
        patterns.is_some_and(|patterns| patterns.name(path))
    }

    /// How exactly this is the profile of a program, which is at any of these paths. `None`: it is not.
    fn fit(&self, paths: &[&Path]) -> Option<u8> {
        let is_at = |path: &&Path| match self.program.contains('/') {
            true => *path == Path::new(&self.program),
            false => path.file_name().is_some_and(|name| *name == *self.program),
        };
        match paths.iter().any(is_at) {
            true => Some(1 + u8::from(self.program.contains('/'))),
            false => (self.program == ALL).then_some(0),
        }
    }
}

/// The profile of the program at a path that `counts`. One by path goes before one by name. The path
/// counts as it is, and with its symbolic links resolved.
pub fn profile_of<'a>(
    all: &'a [Profile],
    path: &Path,
    counts: impl Fn(&Profile) -> bool,
) -> Option<&'a Profile> {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let paths = [path, &resolved];
    let found = all.iter().filter(|profile| counts(profile));
    let found = found.filter_map(|profile| Some((profile.fit(&paths)?, profile)));
    found
        .max_by_key(|(fit, _)| *fit)
        .map(|(_, profile)| profile)
}

/// Whether a line begins a profile.
pub fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// Whether a line is a comment.
pub fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// Parses the text of profiles. `check` says what is wrong with an option of `atomdir run`.
pub fn parse_profiles(
    text: &str,
    check: impl Fn(&ProfileOption) -> Result<(), String>,
) -> Result<Vec<Profile>, BadLine> {
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
        let option = split_option(words).map_err(bad)?;
        if option.key != FILES_WHOLE {
            check(&option).map_err(bad)?;
        }
        let Some(profile) = all.last_mut() else {
            return Err(bad(
                "it is above the first program, which is named as in [/usr/bin/make]".to_owned(),
            ));
        };
        if profile.value(&option.key).is_some() {
            return Err(bad(format!("'{}' is there already", option.key)));
        }
        profile.options.push(option);
        let is_fit = |one: &ProfileOption| [FILES_WHOLE, MESSAGE].contains(&&*one.key);
        let unfit = profile.options.iter().find(|one| !is_fit(one));
        if let (Some(_), Some(unfit)) = (profile.value(FILES_WHOLE), unfit) {
            return Err(bad(format!(
                "'{}' is for runs of a program, and cannot be together with '{FILES_WHOLE}'",
                unfit.key
            )));
        }
    }
    Ok(all)
}

/// Why a program cannot be named so.
pub fn check_program(program: &str) -> Result<(), String> {
    match program.contains('/') {
        _ if program.is_empty() || program.contains(['[', ']', '\n']) => {
            Err(format!("'{program}' is no program: give a path, or a name"))
        }
        true if !program.starts_with('/') => Err(format!(
            "'{program}' is a path from the current directory: give an absolute one, or a name"
        )),
        _ => Ok(()),
    }
}

/// Splits `KEY = VALUE`, or `KEY=VALUE`.
pub fn split_option(text: &str) -> Result<ProfileOption, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("'{text}' is not of the form KEY = VALUE"));
    };
    let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
    match value.contains('\n') {
        true => Err(format!("the value of '{key}' is longer than a line")),
        false => Ok(ProfileOption { key, value }),
    }
}
