//! A message as the mail server passes it, and the form in which an mbox holds it.

use crate::failure::Failure;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Identifies a message, so that it is recognized when the mail server sends it again: a digest of
/// the server's id and of all bytes except the lines that differ from one try to the next.
pub type Key = String;

#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    /// The length of the envelope's `From ` line; 0 if there is none.
    start: usize,
    sender: String,
    pub key: Option<Key>,
    pub message_id: Option<String>,
}

impl Message {
    pub fn new(
        bytes: Vec<u8>,
        sender: Option<&str>,
        queue_id: Option<&str>,
    ) -> Result<Message, Failure> {
        if bytes.is_empty() {
            return Err(Failure::TryAgain("the message is empty".to_owned()));
        }
        let first = bytes.split_inclusive(|byte| *byte == b'\n').next();
        let envelope = first
            .filter(|line| line.starts_with(b"From "))
            .unwrap_or_default();
        let sender = sender.map_or_else(|| sender_in(envelope), str::to_owned);
        let mut message = Message {
            start: envelope.len(),
            sender: word(&sender).unwrap_or_else(|| "MAILER-DAEMON".to_owned()),
            key: None,
            message_id: None,
            bytes,
        };
        message.key = message.find_key(queue_id);
        message.message_id = message.header(b"message-id").and_then(|id| word(&id));
        Ok(message)
    }

    /// The message for a Maildir: all bytes that the mail server passed, except the `From ` line.
    pub fn contents(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The message for an mbox. Lines that look like the start of a message are quoted (the format
    /// mboxrd). `Content-Length` is dropped: some mail readers find the next message by it, so a
    /// sender could hide messages.
    pub fn to_mbox(&self, now: u64) -> Vec<u8> {
        let mut mbox = format!("From {} {}\n", self.sender, ctime(now)).into_bytes();
        let mut in_header = true;
        let mut is_dropped = false;
        for line in self.lines() {
            in_header &= !is_blank(line);
            let continues = line.starts_with(b" ") || line.starts_with(b"\t");
            is_dropped =
                in_header && (is_header(line, b"content-length") || is_dropped && continues);
            if is_dropped {
                continue;
            }
            let quotes = line.iter().take_while(|byte| **byte == b'>').count();
            if line[quotes..].starts_with(b"From ") {
                mbox.push(b'>');
            }
            mbox.extend_from_slice(line);
        }
        if !mbox.ends_with(b"\n") {
            mbox.push(b'\n');
        }
        mbox.push(b'\n');
        mbox
    }

    /// Computes the key. A message with neither an id nor a `Received` line has none: it comes from
    /// a program and not from a mail server. Two such messages may be equal, as the reports of a
    /// nightly job, and both must be delivered.
    fn find_key(&self, queue_id: Option<&str>) -> Option<Key> {
        if queue_id.is_none() && self.header(b"received").is_none() {
            return None;
        }
        let mut digest = Sha256::new();
        digest.update(queue_id.unwrap_or_default());
        digest.update([0]);
        let mut in_header = true;
        for line in self.lines() {
            in_header &= !is_blank(line);
            // Exim sets this line to the time of its try.
            if !(in_header && is_header(line, b"delivery-date")) {
                digest.update(line);
            }
        }
        let mut key = String::new();
        for byte in digest.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
        Some(key)
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.contents().split_inclusive(|byte| *byte == b'\n')
    }

    /// The value of the first header line with this name.
    fn header(&self, name: &[u8]) -> Option<String> {
        let mut headers = self.lines().take_while(|line| !is_blank(line));
        let line = headers.find(|line| is_header(line, name))?;
        let value = String::from_utf8_lossy(&line[name.len()..]);
        Some(
            value
                .trim_start_matches([' ', '\t', ':'])
                .trim_end()
                .to_owned(),
        )
    }
}

fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n")
}

fn is_header(line: &[u8], name: &[u8]) -> bool {
    let Some((start, rest)) = line.split_at_checked(name.len()) else {
        return false;
    };
    let rest = rest.trim_ascii_start();
    start.eq_ignore_ascii_case(name) && rest.starts_with(b":")
}

/// The sender in a line `From SENDER DATE`.
fn sender_in(envelope: &[u8]) -> String {
    let text = String::from_utf8_lossy(envelope);
    text.split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// Makes one printable word of a text that comes from other people.
fn word(text: &str) -> Option<String> {
    let text: String = text.trim().chars().take(300).collect();
    let odd = |c: char| c.is_whitespace() || c.is_control();
    (!text.is_empty()).then(|| text.replace(odd, "_"))
}

/// The time in UTC as asctime(3) writes it.
fn ctime(seconds: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let weekday = WEEKDAYS[(days % 7) as usize];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month, day) = (MONTHS[month], day + 1);
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::new(text.into(), None, None).unwrap()
    }

    #[test]
    fn message_with_from_lines_stays_one_message_in_an_mbox() {
        let text = "From a@b Mon Jan  1 00:00:00 2001\nSubject: x\nContent-Length : 7\n\t9\nTo: c\n\n\
                    From here\n>>From there\nContent-Length: 1\n from";
        let mbox = String::from_utf8(message(text).to_mbox(0)).unwrap();
        let expected = "From a@b Thu Jan  1 00:00:00 1970\nSubject: x\nTo: c\n\n\
                        >From here\n>>>From there\nContent-Length: 1\n from\n\n";
        assert_eq!(mbox, expected);
        let forged = Message::new(b"x\n".into(), Some("a\nFrom b"), None).unwrap();
        assert!(forged.to_mbox(0).starts_with(b"From a_From_b "));
    }

    #[test]
    fn only_a_message_that_is_sent_again_has_the_same_key() {
        let text =
            "Delivery-date: now\nReceived: by a id 1\nMessage-ID: <i d>\n\nDelivery-date: x\n";
        let first = message(text);
        assert_eq!(first.message_id.as_deref(), Some("<i_d>"));
        let again = format!("From a later\n{}", text.replacen("now", "then", 1));
        assert_eq!(message(&again).key, first.key);
        for other in [text.replace("id 1", "id 2"), text.replace(": x", ": y")] {
            assert_ne!(message(&other).key, first.key, "{other}");
        }
        assert_eq!(message("Subject: nightly\n\nReceived: x\n").key, None);
        let with_id = |id| Message::new(b"a\n".into(), None, Some(id)).unwrap().key;
        assert!(
            with_id("1").is_some() && with_id("1") == with_id("1") && with_id("1") != with_id("2")
        );
    }

    #[test]
    fn times_have_the_format_of_asctime() {
        for (seconds, text) in [
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_893_456_000 - 1, "Mon Dec 31 23:59:59 2029"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(ctime(seconds), text);
        }
    }
}
