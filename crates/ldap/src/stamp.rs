//! The operational attributes of an entry: who created and changed it, when, and its unique numbers.

use crate::tree::Entry;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// One operation's time and client.
pub struct Stamp {
    client: String,
    microseconds: u64,
}

impl Stamp {
    pub fn new(client: String) -> Stamp {
        /// The time of the last stamp. Each stamp is later, so no two changes have the same number.
        static LAST: Mutex<u64> = Mutex::new(0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let mut last = LAST.lock().expect("no thread has panicked with it");
        *last = now.max(*last + 1);
        Stamp {
            client,
            microseconds: *last,
        }
    }

    pub fn on_new(&self, entry: &mut Entry) {
        entry.set("entryUUID", unique_id());
        entry.set("creatorsName", self.client.clone());
        entry.set("createTimestamp", format!("{}Z", self.seconds()));
        self.on_changed(entry);
    }

    pub fn on_changed(&self, entry: &mut Entry) {
        let number = format!(
            "{}.{:06}Z#000000#000#000000",
            self.seconds(),
            self.microseconds % 1_000_000
        );
        entry.set("entryCSN", number);
        entry.set("modifiersName", self.client.clone());
        entry.set("modifyTimestamp", format!("{}Z", self.seconds()));
    }

    /// The time as year, month, day, hour, minute and second, in UTC.
    fn seconds(&self) -> String {
        let seconds = self.microseconds / 1_000_000;
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    }
}

/// Year, month and day of the date `days` after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

/// A random UUID.
fn unique_id() -> String {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let got =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += got.expect("the kernel has random bytes");
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (one, rest) = digits.split_at(8);
    let (two, rest) = rest.split_at(4);
    let (three, rest) = rest.split_at(4);
    let (four, five) = rest.split_at(4);
    [one, two, three, four, five].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_780), (2026, 11, 23));
    }

    #[test]
    fn changes_at_the_same_time_have_different_numbers() {
        let (one, two) = (Stamp::new(String::new()), Stamp::new(String::new()));
        assert!(one.microseconds < two.microseconds);
    }
}
