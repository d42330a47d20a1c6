//! How much is kept of what commits replace, so that they can be undone.

use super::{HISTORY_AGE, HISTORY_SPACE, SettingsError};
use std::fmt;
use std::time::Duration;

pub(super) const OFF: &str = "off";
pub(super) const AUTO: &str = "auto";
const DAY_SECONDS: u64 = 86_400;
const AGE_DEFAULT: Duration = Duration::from_secs(7 * DAY_SECONDS);

/// From the longest to the shortest, in seconds.
const AGES: [(char, u64); 4] = [('d', DAY_SECONDS), ('h', 3600), ('m', 60), ('s', 1)];

/// From the largest to the smallest, in bytes.
const SIZES: [(char, u64); 4] = [
    ('T', 1 << 40),
    ('G', 1 << 30),
    ('M', 1 << 20),
    ('K', 1 << 10),
];

/// The limits of the history: older commits, and those that do not fit, are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    pub age: Duration,
    pub space: Space,
}

/// How much space the history of a store may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The lesser of 1 GiB and 5 percent of the file system.
    Auto,
    Bytes(u64),
    /// A share of the file system.
    Percent(u64),
}

impl Space {
    pub fn bytes(self, file_system_bytes: u64) -> u64 {
        let percent = |share: u64| file_system_bytes / 100 * share;
        match self {
            Space::Auto => percent(5).min(1 << 30),
            Space::Bytes(bytes) => bytes,
            Space::Percent(share) => percent(share),
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Auto => formatter.write_str(AUTO),
            Space::Bytes(bytes) => formatter.write_str(&in_units(*bytes, &SIZES)),
            Space::Percent(share) => write!(formatter, "{share}%"),
        }
    }
}

/// `None`: nothing is kept.
pub(super) fn parse_age(text: &str) -> Result<Option<Duration>, SettingsError> {
    match text {
        "" => Ok(Some(AGE_DEFAULT)),
        OFF => Ok(None),
        text => match number(text, &AGES) {
            Some(seconds) if seconds > 0 => Ok(Some(Duration::from_secs(seconds))),
            _ => Err(SettingsError::BadValue {
                key: HISTORY_AGE,
                value: text.to_owned(),
                reason: "it is a number of seconds, a number with the unit s, m, h or d, or off"
                    .to_owned(),
            }),
        },
    }
}

pub(super) fn show_age(age: Option<Duration>) -> String {
    age.map_or_else(|| OFF.to_owned(), |age| in_units(age.as_secs(), &AGES))
}

pub(super) fn parse_space(text: &str) -> Result<Space, SettingsError> {
    let percent = || {
        let share = text.strip_suffix('%')?.parse().ok()?;
        (1..=100).contains(&share).then_some(Space::Percent(share))
    };
    let bytes = || number(text, &SIZES).filter(|bytes| *bytes > 0);
    match text {
        "" | AUTO => Ok(Space::Auto),
        text => percent()
            .or_else(|| bytes().map(Space::Bytes))
            .ok_or_else(|| SettingsError::BadValue {
                key: HISTORY_SPACE,
                value: text.to_owned(),
                reason: "it is a number of bytes, a number with the unit K, M, G or T, a share of \
                         the file system as in 10%, or auto"
                    .to_owned(),
            }),
    }
}

/// A whole number, perhaps with a unit.
fn number(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let unit = units.iter().find(|(unit, _)| text.ends_with(*unit));
    match unit {
        Some((unit, factor)) => {
            let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
            number.checked_mul(*factor)
        }
        None => text.parse().ok(),
    }
}

/// In the largest unit in which it is a whole number.
fn in_units(number: u64, units: &[(char, u64)]) -> String {
    let whole = units
        .iter()
        .find(|(_, factor)| number.is_multiple_of(*factor));
    whole.map_or_else(
        || number.to_string(),
        |(unit, factor)| format!("{}{unit}", number / factor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_shown_as_they_can_be_typed() {
        for age in ["7d", "36h", "90s", "off"] {
            assert_eq!(show_age(parse_age(age).expect(age)), age);
        }
        assert_eq!(show_age(parse_age("").expect("the default")), "7d");
        for space in ["auto", "1G", "1536M", "10%", "4097"] {
            assert_eq!(parse_space(space).expect(space).to_string(), space);
        }
        for wrong in ["0", "-1", "d", "1.5d", "7 d", "7w", "off "] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "0%", "101%", "G", "1GB", "99999999999T"] {
            assert!(parse_space(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_space_is_bounded_twice() {
        assert_eq!(Space::Auto.bytes(1 << 40), 1 << 30);
        assert_eq!(Space::Auto.bytes(1000), 50);
        assert_eq!(Space::Percent(10).bytes(1000), 100);
    }
}
