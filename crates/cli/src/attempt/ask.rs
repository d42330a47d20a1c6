//! Asking on the terminal whether to commit.

use super::Wish;
use crate::changes::{self, ChangeList};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted};
use atomdir::Transaction;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// The terminal itself, whatever the standard streams are.
pub struct Terminal(OwnedFd);

impl Terminal {
    pub fn open() -> Result<Terminal, Error> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(c"/dev/tty", flags, Mode::empty()) {
            Ok(descriptor) => Ok(Terminal(descriptor)),
            Err(_) => Err(Error::Usage {
                message: "there is no terminal to ask on".into(),
                hint: Some("leave --ask out, or use --on-success keep and decide later".into()),
            }),
        }
    }

    /// Without the newline; `None` at the end of input.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            match retry_on_intr(|| rustix::io::read(&self.0, &mut byte))? {
                0 if line.is_empty() => return Ok(None),
                0 => return Ok(Some(line)),
                _ if byte == *b"\n" => return Ok(Some(line)),
                _ => line.extend(byte),
            }
        }
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::write(&self.0, bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows what the transaction changed and asks what to do with it. No answer
/// means no; `None`: nothing changed, so there was nothing to ask.
pub fn ask(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    terminal: &mut Terminal,
) -> Result<Option<Wish>, Error> {
    let lines = connected.connection.changes(transaction.id)?;
    if lines.is_empty() {
        return Ok(None);
    }
    let colour = context.output.wants_colour();
    let mut painter = Painter::on_terminal(terminal, colour);
    ChangeList::new(&lines)
        .show(&mut painter)
        .map_err(Error::Terminal)?;
    let question = format!(
        "Commit {}? [y]es, [N]o, [d]iff, [k]eep open: ",
        counted(lines.len() as u64, "change")
    );
    loop {
        Painter::on_terminal(terminal, colour)
            .paint(Style::Heading, &question)
            .map_err(Error::Terminal)?;
        let answer = terminal.read_line().map_err(Error::Terminal)?;
        let Some(answer) = answer else {
            return Ok(Some(Wish::Abort));
        };
        match answer.trim_ascii().to_ascii_lowercase().as_slice() {
            b"y" | b"yes" => return Ok(Some(Wish::Commit)),
            b"" | b"n" | b"no" => return Ok(Some(Wish::Abort)),
            b"k" | b"keep" => return Ok(Some(Wish::Keep)),
            b"d" | b"diff" => {
                let mut painter = Painter::on_terminal(terminal, colour);
                for line in &lines {
                    let difference = changes::difference(connected, transaction, line)?;
                    difference
                        .show_unified(&mut painter)
                        .map_err(Error::Terminal)?;
                }
            }
            _ => {}
        }
    }
}
