//! One line on the terminal that shows how far a long request has come.

use std::io::{self, Write};

/// Erases itself when dropped.
pub struct ProgressLine {
    doing: &'static str,
    shown: bool,
    percent: Option<u64>,
}

impl ProgressLine {
    pub(super) fn new(doing: &'static str, shown: bool) -> ProgressLine {
        ProgressLine {
            doing,
            shown,
            percent: None,
        }
    }

    pub fn update(&mut self, done: u64, total: u64) {
        let percent = done.saturating_mul(100) / total.max(1);
        if self.shown && self.percent != Some(percent) {
            self.percent = Some(percent);
            let doing = self.doing;
            // In one call, so that the line is never seen empty.
            let line = format!("\r\x1b[K{doing}: {done} of {total} ({percent} %)");
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.percent.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
