//! The controlling terminal, on which a command has run and the user is to see a listing and to answer.
//!
//! A command can leave the terminal in a state in which the listing is not seen, or is seen as something
//! else: a scroll region of two lines, an alternate screen, invisible text, another character set,
//! everything sent to a printer. So the settings are restored, and each state that outlives a
//! program is reset, before the listing. No process of a sealed command is left by then.

use crate::error::Error;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// What a terminal gets, in this order (ECMA-48, and xterm's ctlseqs). A terminal ignores what it does
/// not know.
const RESET: [&str; 9] = [
    // Ends a sequence or a string that has begun, and sending everything to a printer or to the host.
    "\x18\x1b\\\x1b[4i\x1b[?4i",
    // Leaves the mode of a VT52, for UTF-8, with the usual character sets.
    "\x1b<\x1b%G\x1b(B\x1b)B\x1b*B\x1b+B\x0f",
    // Output that is held back until it is complete; the alternate screens.
    "\x1b[?2026l\x1b[?1049l\x1b[?1047l\x1b[?47l",
    "\x1b[!p",
    // Attributes; the colours of text and background, and the palette, which may be one colour.
    "\x1b[0m\x1b[?5l\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\",
    // Margins, origin, inserting, wrapping, the cursor, tab stops.
    "\x1b[?69l\x1b[r\x1b[?6l\x1b[4l\x1b[20l\x1b[?7h\x1b[?25h\x1b[?5W",
    // What keys and the mouse send.
    "\x1b>\x1b[?1l\x1b[?2004l\x1b[?9l\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l",
    "\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[>4m\x1b[<99u\x1b[2l\x1b[12h",
    // Begins below everything that the command has written.
    "\x1b[999;1H\x1b[J\r\n",
];

/// The advice where nobody can be asked before the commit.
pub const DECIDE_LATER: &str = "leave --ask out, or use --on-success keep and decide later";

/// A smaller terminal is none for a user.
const ROWS_MIN: usize = 6;
const COLUMNS_MIN: usize = 30;

/// The controlling terminal, even if the standard streams are redirected.
pub struct Terminal {
    descriptor: OwnedFd,
    /// The user's settings from before the command ran.
    settings: Option<Termios>,
    /// Whether to restore the terminal before asking. Only after a sealed command,
    /// since then no process of the command is left.
    is_regained: bool,
}

impl Terminal {
    /// `sealed` says whether the command that will run on it is sealed, `otherwise` what the user can
    /// do without a terminal.
    pub fn open(sealed: bool, otherwise: &str) -> Result<Terminal, Error> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(c"/dev/tty", flags, Mode::empty()) {
            Ok(descriptor) => Ok(Terminal {
                settings: tcgetattr(&descriptor).ok(),
                descriptor,
                is_regained: sealed,
            }),
            Err(_) => Err(Error::Usage {
                message: "there is no terminal to ask on".into(),
                hint: Some(otherwise.to_owned()),
            }),
        }
    }

    /// Makes sure that the user sees what is printed next, that they type the answer, and that it is
    /// read as lines. The command may have changed the settings and the terminal's own state.
    pub fn regain(&mut self) {
        // A background job would be stopped.
        let is_foreground = tcgetpgrp(&self.descriptor).is_ok_and(|group| group == getpgrp());
        if !self.is_regained || !is_foreground {
            return;
        }
        // If the terminal has hung up, reading reports it.
        if let Some(settings) = &self.settings {
            let _ = tcsetattr(&self.descriptor, OptionalActions::Now, settings);
        }
        if std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb") {
            let _ = self.write_all(RESET.concat().as_bytes());
        }
        self.drop_input();
    }

    /// Drops what the command may have put into the terminal's input, as an answer.
    pub fn drop_input(&self) {
        if self.is_regained {
            let _ = tcflush(&self.descriptor, QueueSelector::IFlush);
        }
    }

    /// Rows and columns; `None` if the terminal does not say.
    fn size(&self) -> Option<(usize, usize)> {
        let size = tcgetwinsize(&self.descriptor).ok()?;
        let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
        (rows >= ROWS_MIN && columns >= COLUMNS_MIN).then_some((rows, columns))
    }

    /// Breaks a question between its choices, where it is longer than a line.
    pub fn wrapped(&self, question: &str) -> String {
        match self.size() {
            Some((_, columns)) => wrap(question, columns),
            None => question.to_owned(),
        }
    }

    /// Shows lines, page by page if they are more than the terminal has.
    pub fn show_pages(&mut self, text: &[u8]) -> io::Result<()> {
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let rows = self.size().map_or(usize::MAX, |(rows, _)| rows - 1);
        // The question that follows fits below the last page.
        if lines.len() < rows.saturating_sub(3) {
            return self.write_all(text);
        }
        let mut shown = 0;
        for page in lines.chunks(rows) {
            self.write_all(&page.concat())?;
            shown += page.len();
            if shown < lines.len() {
                let left = lines.len() - shown;
                write!(
                    self,
                    "-- {left} more lines: Enter shows them, q leaves them out: "
                )?;
                match self.read_line()? {
                    Some(answer) if answer.trim_ascii() != b"q" => {}
                    _ => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Returns a line without its newline, or `None` at the end of input.
    pub(crate) fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            match retry_on_intr(|| rustix::io::read(&self.descriptor, &mut byte))? {
                0 if line.is_empty() => return Ok(None),
                0 => return Ok(Some(line)),
                _ if byte == *b"\n" => return Ok(Some(line)),
                _ => line.extend(byte),
            }
        }
    }
}

fn wrap(question: &str, columns: usize) -> String {
    let mut wrapped = String::new();
    let mut length = 0;
    for part in question.split_inclusive([',', '?']) {
        let width = part.chars().count();
        if length > 0 && part.starts_with(' ') && length + width > columns {
            wrapped.push('\n');
            wrapped.push_str(part.trim_start());
            length = width - 1;
        } else {
            wrapped.push_str(part);
            length += width;
        }
    }
    wrapped
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| {
            rustix::io::write(&self.descriptor, bytes)
        })?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn questions_break_between_their_choices() {
        let question = "Commit 3 changes? [y]es, [n]o, [K]eep open, [?]: ";
        assert_eq!(wrap(question, 80), question);
        assert_eq!(
            wrap(question, 30),
            "Commit 3 changes? [y]es, [n]o,\n[K]eep open, [?]: "
        );
        assert_eq!(wrap(question, 5).replace('\n', " "), question);
    }
}
