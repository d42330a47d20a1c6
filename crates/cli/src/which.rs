//! Which commits a user means: numbers, ranges, the newest ones, or all since a moment.

use crate::error::Error;
use crate::system::Mark;
use crate::when::{self, When};
use atomdir::client::{CommitFilter, Connection, compare::PathFilter};
use atomdir::{CommitSummary, Sequence, Timestamp};
use std::collections::BTreeSet;

/// More commits than the history of a store holds in practice.
const COMMITS_MAX: u64 = 1_000_000;

const WORDS: &str = "it is a commit's number, a range such as 10..12 or 10.., `last` or `last~1`, or a \
                     time since when: 2h (ago), yesterday, \"2026-11-22 14:00\"";

/// One word of a user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of these; `None`: to the newest.
    Range(One, Option<One>),
    /// All that were made since then.
    Since(Timestamp),
    /// Those of one transaction of the whole system.
    Marked(Mark),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum One {
    Number(u64),
    /// So many before the newest.
    Back(u64),
}

/// The commits that somebody has chosen.
pub struct Chosen {
    pub commits: Vec<Sequence>,
    /// If some were named otherwise than by their numbers: which ones these are, newest first.
    pub found: Vec<CommitSummary>,
}

pub fn parse(text: &str) -> Result<Which, String> {
    if let Some(mark) = Mark::parse(text) {
        return Ok(Which::Marked(mark));
    }
    if let Some(last) = text.strip_prefix("..") {
        return Err(format!(
            "name the first commit as well, as in 1..{last}: what the oldest ones replaced may not be \
             kept any more"
        ));
    }
    let range = match text.split_once("..") {
        None => one(text).map(|one| Which::Range(one, Some(one))),
        Some((first, "")) => one(first).map(|first| Which::Range(first, None)),
        Some((first, last)) => one(first)
            .zip(one(last))
            .map(|(first, last)| Which::Range(first, Some(last))),
    };
    match range {
        Some(Which::Range(One::Number(first), Some(One::Number(last)))) => {
            if first > last {
                return Err("the first commit of a range comes before the last".to_owned());
            }
            if last - first >= COMMITS_MAX {
                return Err(format!("a range holds at most {COMMITS_MAX} commits"));
            }
        }
        Some(_) => {}
        None => {
            let moment = text.strip_suffix("..").unwrap_or(text);
            return match when::parse(moment) {
                Ok(When::At(moment)) => Ok(Which::Since(moment)),
                _ => Err(WORDS.to_owned()),
            };
        }
    }
    range.ok_or_else(|| WORDS.to_owned())
}

fn one(text: &str) -> Option<One> {
    if let Ok(number) = text.parse() {
        return Some(One::Number(number));
    }
    let back = ["last", "HEAD"]
        .iter()
        .find_map(|word| text.strip_prefix(word))?;
    match back.strip_prefix('~') {
        Some("") => Some(One::Back(1)),
        Some(back) => back.parse().ok().map(One::Back),
        None => back.is_empty().then_some(One::Back(0)),
    }
}

impl Which {
    fn is_by_number(self) -> bool {
        matches!(self, Which::Range(One::Number(_), Some(One::Number(_))))
    }
}

/// Finds the commits, once: if others commit meanwhile, these stay the ones that are meant. No word
/// means the newest commit.
pub fn choose(connection: &mut Connection, words: &[Which]) -> Result<Chosen, Error> {
    let newest = [Which::Range(One::Back(0), Some(One::Back(0)))];
    let words = if words.is_empty() { &newest[..] } else { words };
    let mut commits: BTreeSet<Sequence> = BTreeSet::new();
    let mut found: BTreeSet<Sequence> = BTreeSet::new();
    let mut log: Option<Vec<CommitSummary>> = None;
    for word in words {
        if let Which::Range(One::Number(first), Some(One::Number(last))) = *word {
            commits.extend((first..=last).map(Sequence));
            continue;
        }
        if log.is_none() {
            log = Some(listed(connection, words)?);
        }
        let log = log.as_deref().unwrap_or_default();
        let meant = matching(log, *word)?;
        found.extend(meant.iter().copied());
        commits.extend(meant);
    }
    let is_found = |one: &CommitSummary| found.contains(&one.sequence);
    Ok(Chosen {
        commits: commits.into_iter().collect(),
        found: log
            .unwrap_or_default()
            .into_iter()
            .filter(is_found)
            .collect(),
    })
}

/// As much of the log as these words are about, newest first.
fn listed(connection: &mut Connection, words: &[Which]) -> Result<Vec<CommitSummary>, Error> {
    let mut limit = 1;
    let mut since: Option<Timestamp> = None;
    let mut is_all = false;
    for word in words.iter().filter(|word| !word.is_by_number()) {
        match *word {
            Which::Since(moment) => {
                since = Some(since.map_or(moment, |known| known.min(moment)));
            }
            Which::Marked(mark) => return Err(only_in_system(mark)),
            Which::Range(first, last) => {
                for end in [Some(first), last].into_iter().flatten() {
                    match end {
                        One::Back(back) => limit = limit.max(back.saturating_add(1)),
                        One::Number(_) => is_all = true,
                    }
                }
            }
        }
    }
    let only = CommitFilter {
        since: since.filter(|_| !is_all && limit == 1),
        ..CommitFilter::default()
    };
    let is_all = is_all || since.is_some();
    let limit = if is_all { u64::MAX } else { limit };
    Ok(connection.log_only((&PathFilter::default(), only), None, limit)?)
}

fn only_in_system(mark: Mark) -> Error {
    Error::usage(format!(
        "{mark} is a transaction of the whole system: name it with `--system`"
    ))
}

fn matching(log: &[CommitSummary], word: Which) -> Result<Vec<Sequence>, Error> {
    let (first, last) = match word {
        Which::Since(moment) => {
            let since = log.iter().filter(|commit| commit.time >= moment);
            let since: Vec<Sequence> = since.map(|commit| commit.sequence).collect();
            return match since.is_empty() {
                true => Err(Error::NoCommit("no commit was made since then".to_owned())),
                false => Ok(since),
            };
        }
        Which::Range(first, last) => (first, last),
        Which::Marked(mark) => return Err(only_in_system(mark)),
    };
    let number = |one| match one {
        One::Number(number) => Ok(Sequence(number)),
        One::Back(back) => {
            let place = usize::try_from(back).ok();
            let commit = place.and_then(|place| log.get(place));
            commit.map(|commit| commit.sequence).ok_or_else(|| {
                let so_many = log.len();
                Error::NoCommit(match so_many {
                    0 => "the log has no commits".to_owned(),
                    _ => format!("the log has only {so_many} commits"),
                })
            })
        }
    };
    let (first, last) = (
        number(first)?,
        last.map_or(Ok(None), |last| number(last).map(Some))?,
    );
    let is_meant = |one: &&Sequence| **one >= first && last.is_none_or(|last| **one <= last);
    let numbers: Vec<Sequence> = log.iter().map(|commit| commit.sequence).collect();
    let meant: Vec<Sequence> = numbers.iter().filter(is_meant).copied().collect();
    match meant.is_empty() {
        true => Err(Error::NoCommit("the log has no such commits".to_owned())),
        false => Ok(meant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_named_by_numbers_words_and_times() {
        let number = One::Number;
        let back = One::Back;
        for (text, which) in [
            ("41", Which::Range(number(41), Some(number(41)))),
            ("2..5", Which::Range(number(2), Some(number(5)))),
            ("2..", Which::Range(number(2), None)),
            ("last", Which::Range(back(0), Some(back(0)))),
            ("HEAD", Which::Range(back(0), Some(back(0)))),
            ("last~2", Which::Range(back(2), Some(back(2)))),
            ("HEAD~", Which::Range(back(1), Some(back(1)))),
            ("HEAD~2..", Which::Range(back(2), None)),
            ("3..last", Which::Range(number(3), Some(back(0)))),
        ] {
            assert_eq!(parse(text), Ok(which), "{text}");
        }
        for text in ["2h", "2h..", "yesterday", "2026-11-22 14:00"] {
            assert!(matches!(parse(text), Ok(Which::Since(_))), "{text}");
        }
        for wrong in [
            "",
            "..",
            "..5",
            "5..2",
            "last~x",
            "first",
            "lastly",
            "0..1000000",
            "2h..5",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
