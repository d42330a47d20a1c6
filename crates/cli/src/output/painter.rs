//! A writer that knows colours, where there are any.

use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Heading,
    Added,
    Removed,
    /// The place of a hunk in a file.
    Place,
    Failure,
    Hint,
}

impl Style {
    fn code(self) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Heading => Some("1"),
            Style::Added => Some("32"),
            Style::Removed => Some("31"),
            Style::Place => Some("36"),
            Style::Failure => Some("1;31"),
            Style::Hint => Some("1;33"),
        }
    }
}

pub struct Painter<'a> {
    writer: &'a mut dyn Write,
    colour: bool,
}

impl<'a> Painter<'a> {
    pub fn new(writer: &'a mut dyn Write, colour: bool) -> Painter<'a> {
        Painter { writer, colour }
    }

    pub fn paint(&mut self, style: Style, text: impl AsRef<[u8]>) -> io::Result<()> {
        match style.code().filter(|_| self.colour) {
            None => self.writer.write_all(text.as_ref()),
            Some(code) => {
                write!(self.writer, "\x1b[{code}m")?;
                self.writer.write_all(text.as_ref())?;
                self.writer.write_all(b"\x1b[0m")
            }
        }
    }

    pub fn line(&mut self, style: Style, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.paint(style, text)?;
        self.writer.write_all(b"\n")
    }
}

impl Write for Painter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
