//! The part of make's command line that matters here: where make will look for makefiles.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Long options that take an argument, with their short names. `--jobs` and its like take
/// theirs only after a `=`.
const WITH_ARGUMENT: [(&[u8], u8); 9] = [
    (b"directory", b'C'),
    (b"file", b'f'),
    (b"makefile", b'f'),
    (b"include-dir", b'I'),
    (b"assume-old", b'o'),
    (b"old-file", b'o'),
    (b"what-if", b'W'),
    (b"assume-new", b'W'),
    (b"eval", b'E'),
];

/// The names under which make looks for a makefile, in this order.
const DEFAULT_NAMES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];

/// Adds one more makefile, which make is to read after all others.
pub fn with_makefile(words: &[OsString], last: &Path) -> Vec<OsString> {
    let found = Found::scan(words);
    let mut added = Vec::new();
    if !found.names_makefile {
        // Make looks for its default only where the command line names none.
        let exists = |name: &&&str| found.directory.join(name).exists();
        if let Some(name) = DEFAULT_NAMES.iter().find(exists) {
            added.extend(["-f".into(), name.into()]);
        }
    }
    added.extend(["-f".into(), last.into()]);
    let mut all = words.to_vec();
    all.splice(found.options_end..found.options_end, added);
    all
}

struct Found {
    /// The directory that make changes to.
    directory: PathBuf,
    names_makefile: bool,
    /// Where the options end: at `--`, or at the end.
    options_end: usize,
}

impl Found {
    fn scan(words: &[OsString]) -> Found {
        let mut found = Found {
            directory: PathBuf::new(),
            names_makefile: false,
            options_end: words.len(),
        };
        let mut at = 0;
        while at < words.len() {
            let word = words[at].as_bytes();
            at += 1;
            if word == b"--" {
                found.options_end = at - 1;
                break;
            }
            let option = match word.strip_prefix(b"--") {
                Some(long) => long_option(long),
                None => word.strip_prefix(b"-").and_then(short_option),
            };
            let Some((letter, attached)) = option else {
                continue;
            };
            let argument = match attached {
                Some(argument) => argument.to_vec(),
                None => {
                    at += 1;
                    words.get(at - 1).cloned().unwrap_or_default().into_vec()
                }
            };
            match letter {
                b'C' => found.directory.push(OsStr::from_bytes(&argument)),
                b'f' => found.names_makefile = true,
                _ => {}
            }
        }
        found
    }
}

/// The option's short name, and its argument if it is in the same word. `None` if it takes no
/// argument from the next word.
fn long_option(word: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    let mut parts = word.splitn(2, |byte| *byte == b'=');
    let name = parts.next()?;
    // Make accepts every unique beginning of a name.
    let option = WITH_ARGUMENT
        .iter()
        .find(|(long, _)| name.len() > 1 && long.starts_with(name))?;
    Some((option.1, parts.next()))
}

/// As for `long_option`, for a word of several letters.
fn short_option(letters: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    for (index, letter) in letters.iter().enumerate() {
        let rest = &letters[index + 1..];
        match letter {
            b'C' | b'f' | b'I' | b'o' | b'W' | b'E' => {
                return Some((*letter, (!rest.is_empty()).then_some(rest)));
            }
            // They may have an argument, in the same word.
            b'j' | b'l' | b'O' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let all = with_makefile(&words, Path::new("/x/last.mk"));
        all.into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn last_makefile_follows_those_that_are_named() {
        for (words, expected) in [
            (&["-f", "a.mk", "all"][..], "-f a.mk all -f /x/last.mk"),
            (&["-kfa.mk", "--", "-t"], "-kfa.mk -f /x/last.mk -- -t"),
            (&["--file=a", "-j", "4"], "--file=a -j 4 -f /x/last.mk"),
            (&["--makef", "a"], "--makef a -f /x/last.mk"),
            (
                &["-C", "/nowhere", "-I", "-f"],
                "-C /nowhere -I -f -f /x/last.mk",
            ),
        ] {
            assert_eq!(added(words).join(" "), expected);
        }
    }

    #[test]
    fn default_makefile_is_found_where_make_looks() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("inner");
        rustix::fs::mkdir(&inner, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        for name in ["Makefile", "makefile"] {
            rustix::fs::open(inner.join(name), flags, rustix::fs::Mode::RWXU).unwrap();
        }
        let outer = scratch.path().to_str().unwrap();
        let words = added(&["-kC", outer, "--directory=inner", "all"]);
        assert_eq!(words[4..].join(" "), "-f makefile -f /x/last.mk");
    }
}
