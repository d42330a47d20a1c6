//! A writer that uses colours where possible, and lets no text control the terminal.
//!
//! Control characters in all text are escaped, whoever wrote the text. Only file
//! contents and output for programs may be exact.

use super::quote::{escape, quoted};
use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Heading,
    Added,
    Removed,
    /// The position of a hunk in a file.
    Position,
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
            Style::Position => Some("36"),
            Style::Failure => Some("1;31"),
            Style::Hint => Some("1;33"),
        }
    }
}

pub struct Painter<'a> {
    writer: &'a mut dyn Write,
    colour: bool,
    /// Whether the writer is a terminal.
    terminal: bool,
}

impl<'a> Painter<'a> {
    /// Writes to a file or a pipe.
    pub fn new(writer: &'a mut dyn Write) -> Painter<'a> {
        Painter {
            writer,
            colour: false,
            terminal: false,
        }
    }

    pub fn on_terminal(writer: &'a mut dyn Write, colour: bool) -> Painter<'a> {
        Painter {
            writer,
            colour,
            terminal: true,
        }
    }

    pub fn paint(&mut self, style: Style, text: impl AsRef<[u8]>) -> io::Result<()> {
        let text = escape(text.as_ref(), &['\n']);
        self.paint_exact(style, text.as_bytes())
    }

    pub fn line(&mut self, style: Style, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.paint(style, text)?;
        self.writer.write_all(b"\n")
    }

    /// Writes a line of a patch, where a tab may end a name.
    pub fn line_of_patch(&mut self, style: Style, text: &str) -> io::Result<()> {
        self.contents_line(style, text.as_bytes())
    }

    /// Writes a line of a file's contents. A pipe gets it unchanged, so that a
    /// program can apply the patch.
    pub fn contents_line(&mut self, style: Style, text: &[u8]) -> io::Result<()> {
        if self.terminal {
            let text = escape(text, &['\t']);
            self.paint_exact(style, text.as_bytes())?;
        } else {
            self.paint_exact(style, text)?;
        }
        self.writer.write_all(b"\n")
    }

    /// Writes the name of a file. A pipe gets it as it is, for a program that uses it, unless it is
    /// more than a line.
    pub fn name_line(&mut self, name: &[u8]) -> io::Result<()> {
        match self.terminal || name.contains(&b'\n') {
            true => self.exact(quoted(name).as_bytes())?,
            false => self.exact(name)?,
        }
        self.exact(b"\n")
    }

    /// Writes output for programs.
    pub fn exact(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn paint_exact(&mut self, style: Style, text: &[u8]) -> io::Result<()> {
        match style.code().filter(|_| self.colour) {
            None => self.writer.write_all(text),
            Some(code) => {
                write!(self.writer, "\x1b[{code}m")?;
                self.writer.write_all(text)?;
                self.writer.write_all(b"\x1b[0m")
            }
        }
    }
}

/// Formatting writes whole strings, so no character is split.
impl Write for Painter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = escape(bytes, &['\n']);
        self.writer.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(terminal: bool) -> Vec<u8> {
        let mut text = Vec::new();
        let mut painter = if terminal {
            Painter::on_terminal(&mut text, false)
        } else {
            Painter::new(&mut text)
        };
        let written = painter.contents_line(Style::Added, b"+a\tb\x1b[2J\r\xff");
        written.expect("a vector takes all");
        text
    }

    #[test]
    fn contents_are_escaped_only_on_a_terminal() {
        assert_eq!(contents(false), b"+a\tb\x1b[2J\r\xff\n");
        assert_eq!(contents(true), b"+a\tb\\033[2J\\r\\377\n");
    }
}
