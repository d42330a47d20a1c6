//! One line on the terminal that shows how far a commit has come.

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
            let _ = write!(
                io::stderr(),
                "\r\x1b[K{doing}: {done} of {total} ({percent} %)"
            );
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
