//! A mailbox's index: one line of text for each message that was delivered.
//!
//!     TIME KEY LENGTH PLACE MESSAGE-ID
//!
//! TIME is in seconds since 1970. LENGTH is the number of bytes that the message has in the mailbox.
//! PLACE is the offset in the mbox, or the name of the file in a Maildir, at the time of the
//! delivery. KEY is the message's [`Key`](crate::message::Key). `-` stands for a KEY or MESSAGE-ID
//! that the message does not have.
//!
//! A line is added in the same transaction as the message, so the index has a line with a key if and
//! only if the message with this key was delivered. Lines are kept for at least [`KEPT_SECONDS`].
//! Older ones are dropped together when the first is twice as old, so that the file is seldom
//! rewritten.

/// By default, mail servers stop sending a message again after five days at most.
pub const KEPT_SECONDS: u64 = 30 * 24 * 60 * 60;

/// The index's line for one message.
pub struct Line<'a> {
    pub time: u64,
    pub key: Option<&'a str>,
    pub length: u64,
    pub place: &'a str,
    pub message_id: Option<&'a str>,
}

impl Line<'_> {
    pub fn to_text(&self) -> String {
        let (key, id) = (self.key.unwrap_or("-"), self.message_id.unwrap_or("-"));
        format!("{} {key} {} {} {id}\n", self.time, self.length, self.place)
    }
}

/// Whether the index has a message with this key.
pub fn contains(index: &[u8], key: &str) -> bool {
    lines(index).any(|line| line.split(|byte| *byte == b' ').nth(1) == Some(key.as_bytes()))
}

/// The index without old lines, if it is time to drop them.
pub fn without_old(index: &[u8], now: u64) -> Option<Vec<u8>> {
    let age = |line: &[u8]| now.saturating_sub(time(line));
    if lines(index)
        .next()
        .is_none_or(|first| age(first) <= 2 * KEPT_SECONDS)
    {
        return None;
    }
    let kept = lines(index).filter(|line| age(line) <= KEPT_SECONDS);
    Some(kept.flat_map(|line| [line, b"\n"].concat()).collect())
}

fn lines(index: &[u8]) -> impl Iterator<Item = &[u8]> {
    index
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// The time of a line. 0 if the line is damaged, which makes it old.
fn time(line: &[u8]) -> u64 {
    let word = line.split(|byte| *byte == b' ').next();
    let word = word.and_then(|word| std::str::from_utf8(word).ok());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_are_dropped_and_recent_ones_kept() {
        let line = |time, key| {
            Line {
                time,
                key: Some(key),
                length: 1,
                place: "0",
                message_id: None,
            }
            .to_text()
        };
        let start = 1_000_000_000;
        let index = [line(start, "a"), line(start + KEPT_SECONDS, "b")].concat();
        let index = index.as_bytes();
        assert!(contains(index, "a") && contains(index, "b") && !contains(index, "1"));
        assert_eq!(without_old(index, start + 2 * KEPT_SECONDS), None);
        let later = without_old(index, start + 2 * KEPT_SECONDS + 1).unwrap();
        assert!(!contains(&later, "a") && !contains(&later, "b"));
        let index = [line(start, "a"), line(start + 2 * KEPT_SECONDS, "b")].concat();
        let later = without_old(index.as_bytes(), start + 2 * KEPT_SECONDS + 1).unwrap();
        assert!(!contains(&later, "a") && contains(&later, "b"));
        // A clock that was set back drops nothing.
        assert_eq!(without_old(index.as_bytes(), 0), None);
    }
}
