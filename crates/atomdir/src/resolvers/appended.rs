//! Files to which both sides have only appended: the lines of both follow one another.
//!
//! That is right for a log and wrong for a ledger, in which a line depends on the one before it. So it is
//! done only for names that the store's owner has set, and for the logs of git's references.

use super::git_packed::repository_of;
use crate::three_way::ThreeWay;

/// The names of files that are only appended to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Patterns(Vec<Vec<u8>>);

impl Patterns {
    /// Parses `PATTERN,PATTERN`.
    pub fn parse(text: &str) -> Patterns {
        let patterns = text.split(',').map(str::trim);
        let patterns = patterns.filter(|pattern| !pattern.is_empty());
        Patterns(
            patterns
                .map(|pattern| pattern.as_bytes().to_vec())
                .collect(),
        )
    }

    pub fn shown(&self) -> String {
        let patterns = self.0.iter();
        let patterns: Vec<_> = patterns.map(|one| String::from_utf8_lossy(one)).collect();
        patterns.join(",")
    }

    /// Whether a path is one of these, or a log of git's.
    pub fn have(&self, path: &[u8]) -> bool {
        let is_gits = repository_of(path).is_some_and(|repository| {
            let within = &path[repository.len()..];
            within.starts_with(b"logs/") && within != b"logs/refs/stash"
        });
        is_gits || self.name(path)
    }

    /// Whether a path is one of these.
    pub fn name(&self, path: &[u8]) -> bool {
        self.0.iter().any(|pattern| fits(pattern, path))
    }
}

/// A pattern without a slash is compared with the last name, another one with the whole path.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    match pattern.contains(&b'/') {
        true => fits_text(pattern.strip_prefix(b"/").unwrap_or(pattern), path),
        false => fits_text(pattern, name),
    }
}

/// `*` stands for any characters but a slash, `**` for any, `?` for one that is no slash.
fn fits_text(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // Behind the last `*` and the last `**`, with how far in the text each reaches. If a `*` cannot
    // reach further, the `**` before it can.
    let mut star: Option<(usize, usize)> = None;
    let mut stars = star;
    loop {
        match (pattern.get(pattern_at), text.get(text_at)) {
            (None, None) => return true,
            (Some(b'*'), _) if pattern.get(pattern_at + 1) == Some(&b'*') => {
                pattern_at += 2;
                (star, stars) = (None, Some((pattern_at, text_at)));
            }
            (Some(b'*'), _) => {
                pattern_at += 1;
                star = Some((pattern_at, text_at));
            }
            (Some(b'?'), Some(found)) if *found != b'/' => {
                (pattern_at, text_at) = (pattern_at + 1, text_at + 1);
            }
            (Some(wanted), Some(found)) if wanted == found => {
                (pattern_at, text_at) = (pattern_at + 1, text_at + 1);
            }
            _ => {
                let is_in_name = |(_, reached): &(usize, usize)| {
                    text.get(*reached).is_some_and(|found| *found != b'/')
                };
                star = star.filter(is_in_name);
                let last = match star {
                    Some(_) => &mut star,
                    None => &mut stars,
                };
                match last {
                    Some((after, reached)) if *reached < text.len() => {
                        *reached += 1;
                        (pattern_at, text_at) = (*after, *reached);
                    }
                    _ => return false,
                }
            }
        }
    }
}

/// The text with what both sides have appended; that of the others first, since it is there already.
pub(super) fn both(texts: &ThreeWay) -> Option<Vec<u8>> {
    let ThreeWay {
        ancestor,
        mine,
        theirs,
        ..
    } = texts;
    if !texts.ancestor_is_known || !theirs.starts_with(ancestor) {
        return None;
    }
    let appended = mine.strip_prefix(&ancestor[..])?;
    // A line that is not finished would get the other's beginning.
    let is_between_lines = |text: &[u8]| text.is_empty() || text.ends_with(b"\n");
    let is_clean = is_between_lines(ancestor) && is_between_lines(theirs);
    is_clean.then(|| [theirs, appended].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        let patterns = Patterns::parse("*.log, var/*/out?,deep/**/x ,,**/run*/out");
        for path in [
            "a.log",
            "dir/.log",
            "var/a/out1",
            "deep/a/b/x",
            ".git/logs/HEAD",
            // The `**` reaches further once the `*` cannot.
            "a/run1/b/run2/out",
        ] {
            assert!(patterns.have(path.as_bytes()), "{path}");
        }
        for path in [
            "a.logs",
            "log",
            "a.log/b",
            "var/a/b/out1",
            "var/a/out",
            "x/var/a/out1",
            "deep/x",
            "a/run1/b/out",
            ".git/logs/refs/stash",
            ".git/index",
        ] {
            assert!(!patterns.have(path.as_bytes()), "{path}");
        }
        assert_eq!(patterns.shown(), "*.log,var/*/out?,deep/**/x,**/run*/out");
    }

    #[test]
    fn what_both_have_appended_follows_one_another() {
        let texts = |ancestor: &str, mine: &str, theirs: &str| ThreeWay {
            path: "log".into(),
            ancestor: ancestor.into(),
            ancestor_is_known: true,
            mine: mine.into(),
            theirs: theirs.into(),
        };
        let appended = both(&texts("a\n", "a\nm\n", "a\nt\n"));
        assert_eq!(appended.as_deref(), Some(&b"a\nt\nm\n"[..]));
        assert_eq!(
            both(&texts("", "m\n", "t\n")).as_deref(),
            Some(&b"t\nm\n"[..])
        );
        for (ancestor, mine, theirs) in [
            ("a\n", "b\nm\n", "a\nt\n"),
            ("a\n", "a\nm\n", "t\n"),
            ("a\n", "a\nm\n", "a\nt"),
            ("a", "a\nm\n", "a\nt\n"),
            ("a\nb\n", "a\n", "a\nb\nt\n"),
        ] {
            assert_eq!(both(&texts(ancestor, mine, theirs)), None);
        }
        let unknown = ThreeWay {
            ancestor_is_known: false,
            ..texts("a\n", "a\nm\n", "a\nt\n")
        };
        assert_eq!(both(&unknown), None);
    }
}
