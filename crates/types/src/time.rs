use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The time since 1970, by the real-time clock.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Added to the seconds; less than a second.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The time in two fields of a system call's structure, whose types differ between machines.
    pub fn of_fields(seconds: i64, nanoseconds: impl TryInto<u32>) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: nanoseconds.try_into().unwrap_or(0),
        }
    }
}

/// A time that `SystemTime` cannot hold becomes 1970.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> SystemTime {
        let fraction = Duration::from_nanos(time.nanoseconds.into());
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = match time.seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
            false => SystemTime::UNIX_EPOCH.checked_add(seconds),
        };
        whole
            .and_then(|whole| whole.checked_add(fraction))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timestamp {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: since.subsec_nanos(),
            },
            Err(error) => {
                let before = error.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Timestamp {
                        seconds: -seconds,
                        nanoseconds: 0,
                    },
                    fraction => Timestamp {
                        seconds: -seconds - 1,
                        nanoseconds: 1_000_000_000 - fraction,
                    },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fraction() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 999_999_999), (-3, 0), (-3, 1)] {
            let time = Timestamp {
                seconds,
                nanoseconds,
            };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }
}
