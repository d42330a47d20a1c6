//! Durations on the command line.

use std::time::Duration;

const UNITS: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

/// A decimal number of seconds, or of the unit that follows it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|character: char| character.is_ascii_alphabetic());
    let (number, unit) = text.split_at(number_end.unwrap_or(text.len()));
    let unit = if unit.is_empty() { "s" } else { unit };
    let seconds_per_unit = UNITS.iter().find(|(name, _)| *name == unit);
    let number = number.parse::<f64>().ok();
    let seconds = number
        .zip(seconds_per_unit)
        .map(|(number, (_, factor))| number * factor);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "a time is a number above 0 with a unit: ms, s (if none), m, h or d".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_by_timeout_and_in_milliseconds() {
        assert_eq!(parse("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "0", "-1", "s", "1 s", "1x", "inf", "nan", "1e400"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
