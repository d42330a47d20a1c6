//! Times as text: in the local time zone for users, in UTC for programs.

use atomdir::Timestamp;
use std::mem::MaybeUninit;
use std::time::SystemTime;

const SECONDS_PER_DAY: i64 = 86_400;

/// RFC 3339 with nanoseconds.
pub fn precise(time: Timestamp) -> String {
    let (date, clock) = split(time);
    format!("{date}T{clock}.{:09}Z", time.nanoseconds)
}

/// In the local time zone, with seconds and the offset from UTC.
pub fn readable(time: Timestamp) -> String {
    at_offset(time, local_offset_seconds(time.seconds))
}

fn at_offset(time: Timestamp, offset_seconds: i64) -> String {
    let (date, clock) = split(Timestamp {
        seconds: time.seconds.saturating_add(offset_seconds),
        ..time
    });
    let sign = if offset_seconds < 0 { '-' } else { '+' };
    let minutes = offset_seconds.abs() / 60;
    let (hours, minutes) = (minutes / 60, minutes % 60);
    format!("{date} {clock} {sign}{hours:02}{minutes:02}")
}

/// How many seconds the local time zone is east of UTC at that time.
fn local_offset_seconds(seconds: i64) -> i64 {
    let mut local = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: localtime_r(3) fills the structure, or returns null.
    unsafe {
        match libc::localtime_r(&seconds, local.as_mut_ptr()).is_null() {
            true => 0,
            false => local.assume_init().tm_gmtoff,
        }
    }
}

/// A date, and perhaps a time of day, in the local time zone; or both with an offset from UTC, as
/// RFC 3339 has it.
pub fn parse(text: &str) -> Option<Timestamp> {
    let (date, clock) = match text.split_once(['T', 't', ' ']) {
        Some((date, clock)) => (date, clock.trim_start()),
        None => (text, "00:00"),
    };
    let mut parts = date.splitn(3, '-').map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year > 9999 {
        return None;
    }
    let (clock, offset_seconds) = split_offset(clock)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let nanoseconds = match fraction.len() {
        0 => 0,
        1..=9 => digits(&format!("{fraction:0<9}"))?,
        _ => return None,
    };
    let mut parts = clock.splitn(3, ':').map(digits);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let utc = day_number(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let seconds = match offset_seconds {
        Some(offset) => utc - offset,
        // The offset that holds then, which the offset at a nearby moment finds.
        None => utc - local_offset_seconds(utc - local_offset_seconds(utc)),
    };
    Some(Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).ok()?,
    })
}

/// When the local day began that was so many days ago.
pub fn day_began(days_ago: i64) -> Option<Timestamp> {
    let now = Timestamp::from(SystemTime::now()).seconds;
    let today = (now + local_offset_seconds(now)).div_euclid(SECONDS_PER_DAY);
    let (year, month, day) = date(today - days_ago);
    parse(&format!("{year:04}-{month:02}-{day:02}"))
}

/// Splits off `Z`, `+02:00` or `+0200`.
fn split_offset(clock: &str) -> Option<(&str, Option<i64>)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, Some(0)));
    }
    let Some(sign) = clock.rfind(['+', '-']) else {
        return Some((clock, None));
    };
    let (clock, offset) = clock.split_at(sign);
    let digits_of = offset[1..].replace(':', "");
    let number = digits(&digits_of).filter(|_| digits_of.len() == 4)?;
    let seconds = number / 100 * 3600 + number % 100 * 60;
    let seconds = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    Some((clock.trim_end(), Some(seconds)))
}

fn digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// How long ago it was. A clock that was put back meanwhile gives 0.
pub fn seconds_since(time: Timestamp) -> u64 {
    let since = SystemTime::now().duration_since(time.into());
    since.map_or(0, |since| since.as_secs())
}

/// A duration in its two largest units.
pub fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn split(time: Timestamp) -> (String, String) {
    let (year, month, day) = date(time.seconds.div_euclid(SECONDS_PER_DAY));
    let second = time.seconds.rem_euclid(SECONDS_PER_DAY);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        ),
    )
}

/// The Gregorian date of a day counted from 1970: Howard Hinnant,
/// "chrono-compatible low-level date algorithms". Years begin in March, so that
/// the leap day is the last.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_month)
}

/// The reverse of `date`.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> String {
        after_epoch(seconds, 0)
    }

    fn after_epoch(seconds: i64, offset_seconds: i64) -> String {
        let nanoseconds = 0;
        let time = Timestamp {
            seconds,
            nanoseconds,
        };
        at_offset(time, offset_seconds)
    }

    #[test]
    fn dates_agree_with_the_calendar() {
        assert_eq!(after_epoch(0, 19_800), "1970-01-01 05:30:00 +0530");
        assert_eq!(after_epoch(0, -3_600), "1969-12-31 23:00:00 -0100");
        assert_eq!(at(0), "1970-01-01 00:00:00 +0000");
        assert_eq!(at(-1), "1969-12-31 23:59:59 +0000");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 +0000");
        assert_eq!(at(1_709_251_199), "2024-02-29 23:59:59 +0000");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00 +0000");
        let time = Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 42,
        };
        assert_eq!(precise(time), "2023-11-14T22:13:20.000000042Z");
    }

    #[test]
    fn times_are_read_as_they_are_printed() {
        for seconds in [0, 951_782_400, 1_709_251_199, 1_762_955_999, 4_107_542_400] {
            let time = Timestamp {
                seconds,
                nanoseconds: 42,
            };
            assert_eq!(parse(&precise(time)), Some(time));
            let whole = Timestamp {
                nanoseconds: 0,
                ..time
            };
            assert_eq!(parse(&readable(time)), Some(whole));
            let local = readable(time);
            let local = local.rsplit_once(' ').expect("there is an offset").0;
            assert_eq!(parse(local), Some(whole));
        }
        let east = parse("2023-11-15T00:13:20+02:00").expect("it is a time");
        assert_eq!(east.seconds, 1_700_000_000);
        for wrong in [
            "2023",
            "2023-11-14T",
            "2023-11-14 25:00",
            "2023-11-14 10:00 PM",
            "1-2",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ages_have_two_units() {
        assert_eq!(age(59), "59 s");
        assert_eq!(age(61), "1 min 1 s");
        assert_eq!(age(7_384), "2 h 3 min");
        assert_eq!(age(90_000), "1 d 1 h");
    }
}
