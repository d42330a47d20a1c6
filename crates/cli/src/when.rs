//! A moment in a store's past, as users write it: a commit or a time.

use crate::error::Error;
use crate::output::time;
use atomdir::client::Connection;
use atomdir::{Sequence, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Just after this commit; 0: before the first.
    Commit(Sequence),
    At(Timestamp),
}

/// A commit's number, how long ago (`90s`, `10m`, `2h`, `3d`), `today` or `yesterday` (when that day
/// began), a local date and time, or one as RFC 3339 has it.
pub fn parse(text: &str) -> Result<When, String> {
    if let Ok(commit) = text.parse() {
        return Ok(When::Commit(Sequence(commit)));
    }
    if let Some(moment) = time::parse(text) {
        return Ok(When::At(moment));
    }
    let days_ago = match text {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => None,
    };
    if let Some(began) = days_ago.and_then(time::day_began) {
        return Ok(When::At(began));
    }
    let ago = text.ends_with(|last: char| last.is_ascii_alphabetic());
    let ago = ago.then(|| crate::duration::parse(text).ok()).flatten();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let then = ago.zip(now).and_then(|(ago, now)| now.checked_sub(ago));
    let then = then.and_then(|then| {
        Some(When::At(Timestamp {
            seconds: i64::try_from(then.as_secs()).ok()?,
            nanoseconds: then.subsec_nanos(),
        }))
    });
    then.ok_or_else(|| {
        "it is a commit's number, or a time: 2h (ago), yesterday, \"2026-11-22 14:00\", or RFC 3339"
            .into()
    })
}

impl When {
    /// The commit that was the newest then.
    pub fn commit(self, connection: &mut Connection) -> Result<Sequence, Error> {
        match self {
            When::Commit(commit) => Ok(commit),
            When::At(moment) => Ok(connection.commit_at(moment)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_times_are_distinguished() {
        assert_eq!(parse("41"), Ok(When::Commit(Sequence(41))));
        let moment = Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 0,
        };
        assert_eq!(parse("2023-11-14T22:13:20Z"), Ok(When::At(moment)));
        assert!(matches!(parse("2h"), Ok(When::At(_))));
        let (Ok(When::At(today)), Ok(When::At(yesterday))) = (parse("today"), parse("yesterday"))
        else {
            panic!("both are moments");
        };
        // A day has 23 to 25 hours where the clock changes.
        let hours = (today.seconds - yesterday.seconds) / 3600;
        assert!((23..=25).contains(&hours), "{hours}");
        for wrong in ["", "-1", "2x", "tomorrow", "2023-13-01", "99999999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
