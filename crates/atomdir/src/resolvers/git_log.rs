//! The logs of git's references: a line for each move, with the object's name before and after it.
//!
//! A later line may be of a commit or of somebody else, and `git gc` writes each log again without its
//! old lines. But an object that a commit has made was there for nobody else before. So if the log
//! says for the first time that the reference moves to such an object, then this line is the commit's,
//! and so are those before it that were not there before the commit.

use std::collections::HashSet;

/// One line.
struct Move<'a> {
    line: &'a [u8],
    from: &'a [u8],
    to: &'a [u8],
}

/// A log, compared with the one before the commits.
pub struct Moves {
    /// The log without their lines.
    pub left: Vec<u8>,
    /// `None`: there is no line of which it is known that the commits have added it.
    pub added: Option<Added>,
}

/// The lines that commits have added.
pub struct Added {
    /// The object before the first of them.
    pub from: Vec<u8>,
    /// The object after the last of them.
    pub to: Vec<u8>,
    /// No line comes after them.
    pub is_last: bool,
}

/// Compares a log with the one before the commits. `made`: the names of objects that they have made.
pub fn moves(before: &[u8], now: &[u8], made: &HashSet<Vec<u8>>) -> Option<Moves> {
    let (before, now) = (parse(before)?, parse(now)?);
    let mut at = 0;
    let mut common = 0;
    while let Some(found) = now.get(common) {
        let same = before[at..].iter().position(|one| one.line == found.line);
        let Some(same) = same else {
            break;
        };
        at += same + 1;
        common += 1;
    }
    let (kept, later) = now.split_at(common);
    let mut visited: HashSet<&[u8]> = before.iter().map(|one| one.to).collect();
    let mut last = None;
    for (number, one) in later.iter().enumerate() {
        if visited.insert(one.to) && made.contains(one.to) {
            last = Some(number);
        }
    }
    let end = last.map_or(0, |last| last + 1);
    let left = kept.iter().chain(&later[end..]);
    Some(Moves {
        left: left.flat_map(|one| one.line).copied().collect(),
        added: last.map(|last| Added {
            from: later[0].from.to_vec(),
            to: later[last].to.to_vec(),
            is_last: end == later.len(),
        }),
    })
}

/// The object to which the last line leads.
pub fn end(log: &[u8]) -> Option<Vec<u8>> {
    parse(log)?.last().map(|one| one.to.to_vec())
}

/// `None` if a line is not understood.
fn parse(log: &[u8]) -> Option<Vec<Move<'_>>> {
    let lines = log.split_inclusive(|byte| *byte == b'\n');
    lines
        .map(|line| {
            let text = line.strip_suffix(b"\n")?;
            let mut words = text.splitn(3, |byte| *byte == b' ');
            let (from, to) = (words.next()?, words.next()?);
            let is_whole = is_name(from) && is_name(to) && words.next().is_some();
            is_whole.then_some(Move { line, from, to })
        })
        .collect()
}

/// Whether this is the name of an object.
pub fn is_name(word: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    matches!(word.len(), 40 | 64) && word.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(letter: char) -> Vec<u8> {
        letter.to_string().repeat(40).into_bytes()
    }

    /// A log with a line for each pair of letters.
    fn log(moves: &[&str]) -> Vec<u8> {
        let line = |pair: &&str| {
            let names = pair.chars().map(name);
            let names: Vec<Vec<u8>> = names.collect();
            [&names[0], &b" "[..], &names[1], b" me <m> 1 +0000\tx\n"].concat()
        };
        moves.iter().flat_map(line).collect()
    }

    fn found(before: &[&str], now: &[&str], made: &[char]) -> (Vec<u8>, Option<(Vec<u8>, bool)>) {
        let made = made.iter().copied().map(name).collect();
        let moves = moves(&log(before), &log(now), &made).expect("both are logs");
        let added = moves.added.map(|added| (added.to, added.is_last));
        (moves.left, added)
    }

    #[test]
    fn the_lines_of_the_commits_are_found() {
        let made = ['b', 'c'];
        let whole = Some((name('c'), true));
        assert_eq!(
            found(&["0a"], &["0a", "ab", "bc"], &made),
            (log(&["0a"]), whole.clone())
        );
        // Old lines have gone since.
        assert_eq!(
            found(&["0f", "fa"], &["fa", "ab", "bc"], &made),
            (log(&["fa"]), whole.clone())
        );
        assert_eq!(found(&["0a"], &["ab", "bc"], &made), (log(&[]), whole));
        // A branch was made first, at the object that HEAD had.
        let head = found(&["0a"], &["0a", "aa", "ab"], &made);
        assert_eq!(head, (log(&["0a"]), Some((name('b'), true))));
    }

    #[test]
    fn lines_of_others_stay() {
        let made = ['b', 'c'];
        for (now, stay) in [
            (["0a", "ab", "bd"], ["0a", "bd"]),
            // Back to an object that the log has had before.
            (["0a", "ab", "ba"], ["0a", "ba"]),
            (["0a", "ab", "bb"], ["0a", "bb"]),
        ] {
            let left = (log(&stay), Some((name('b'), false)));
            assert_eq!(found(&["0a"], &now, &made), left, "{now:?}");
        }
        assert_eq!(
            found(&["0a"], &["0a", "ad"], &made),
            (log(&["0a", "ad"]), None)
        );
    }

    #[test]
    fn what_is_no_log_is_not_understood() {
        let (good, none) = (log(&["0a", "ab"]), HashSet::new());
        assert!(moves(b"", &good, &none).is_some());
        for bad in [&good[..good.len() - 1], b"\n", b"a b c\n", &[0, b'\n']] {
            assert!(moves(bad, &good, &none).is_none(), "{bad:?}");
            assert!(moves(&good, bad, &none).is_none(), "{bad:?}");
        }
    }
}
