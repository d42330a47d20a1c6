//! All output goes through here: results to standard output, as text or as JSON;
//! notes, details and failures to standard error.

pub mod json;
mod pager;
mod painter;
mod progress;
mod quote;
mod stores;
pub mod time;

use pager::Pager;
pub use painter::{Painter, Style};
pub use progress::ProgressLine;
pub use quote::{escaped, is_unseen, quoted};
pub use stores::{InStore, Stores};

use crate::error::{Error, Explained};
use atomdir::{Conflicts, Durability, Isolation, LockMode};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

/// A result. `show` writes its text; its JSON is its serialization.
pub trait Show: Serialize {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()>;
}

#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    wants_colour: bool,
    is_terminal: bool,
    is_error_terminal: bool,
    pages: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool, verbose: bool) -> Output {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let wanted = !is_set("NO_COLOR") && !dumb;
        Output {
            json,
            quiet,
            verbose,
            wants_colour: wanted,
            is_terminal: io::stdout().is_terminal(),
            is_error_terminal: io::stderr().is_terminal(),
            pages: false,
        }
    }

    /// Whether long results may go through a pager. They never do without a terminal.
    pub fn with_pager(self, wanted: bool) -> Output {
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let pages = wanted && self.is_terminal && !self.json && !dumb;
        Output { pages, ..self }
    }

    /// Sends everything that `show` prints through a pager. If the user quits the
    /// pager early, that is no failure.
    pub fn page(&self, show: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let pager = match self.pages {
            true => Pager::start().map_err(Error::Output)?,
            false => None,
        };
        let Some(pager) = pager else {
            return show();
        };
        let shown = show();
        if let Some(problem) = pager.end().map_err(Error::Output)? {
            self.warn(problem);
        }
        match shown {
            Err(error) if error.is_broken_pipe() => Ok(()),
            shown => shown,
        }
    }

    /// Prints a result that the user asked for and that may be long.
    pub fn print_paged(&self, result: &impl Show) -> Result<(), Error> {
        self.page(|| self.print(result))
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether to use colours when writing directly to a terminal.
    pub fn wants_colour(&self) -> bool {
        self.wants_colour
    }

    /// Prints a result that the user asked for.
    pub fn print(&self, result: &impl Show) -> Result<(), Error> {
        if self.json {
            return self.print_json(result);
        }
        self.write(|painter| result.show(painter))
    }

    /// Prints a confirmation; `-q` leaves its text out.
    pub fn confirm(&self, result: &impl Show) -> Result<(), Error> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.print(result)
    }

    pub fn print_json(&self, result: &impl Serialize) -> Result<(), Error> {
        let text = to_json(result) + "\n";
        self.write(|painter| painter.exact(text.as_bytes()))
    }

    pub fn write(
        &self,
        show: impl FnOnce(&mut Painter<'_>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut writer = BufWriter::new(io::stdout().lock());
        show(&mut self.painter(&mut writer, self.is_terminal))
            .and_then(|()| writer.flush())
            .map_err(Error::Output)
    }

    fn painter<'a>(&self, writer: &'a mut dyn Write, is_terminal: bool) -> Painter<'a> {
        if is_terminal {
            Painter::on_terminal(writer, self.wants_colour)
        } else {
            Painter::new(writer)
        }
    }

    /// Prints what the user should know but did not ask for.
    pub fn note(&self, message: impl Display) {
        if !self.quiet {
            self.note_always(&message);
        }
    }

    /// Whether to summarize a commit that went well for a user at a terminal.
    pub fn summarizes(&self) -> bool {
        (self.is_error_terminal || self.verbose) && !self.quiet && !self.json
    }

    /// Prints what the user must know, even with `-q`.
    pub fn warn(&self, message: impl Display) {
        if self.json {
            let warning = message.to_string();
            return self.tell_json(&Warning { warning });
        }
        self.write_line(Style::Hint, "warning: ", &message);
    }

    /// Prints to standard error, even with `-q`.
    pub fn tell_json(&self, value: &impl Serialize) {
        let text = to_json(value) + "\n";
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Prints only with `-v`.
    pub fn detail(&self, message: impl Display) {
        if self.verbose && !self.quiet {
            self.note_always(&message);
        }
    }

    fn note_always(&self, message: &dyn Display) {
        if self.json {
            let note = message.to_string();
            return self.tell_json(&Note { note });
        }
        self.write_line(Style::Plain, "", message);
    }

    pub fn failure(&self, failure: &Explained) {
        if self.json {
            return self.tell_json(&failure.json());
        }
        self.write_line(Style::Failure, "error: ", &failure.message);
        for line in &failure.lines {
            self.write_line(Style::Plain, "  ", line);
        }
        if let Some(hint) = &failure.hint {
            self.write_line(Style::Hint, "hint: ", hint);
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub fn progress(&self, doing: &'static str) -> ProgressLine {
        ProgressLine::new(
            doing,
            !self.quiet && !self.json && io::stderr().is_terminal(),
        )
    }

    /// Prints one line. If standard error cannot be written to, there is nothing to be done.
    fn write_line(&self, style: Style, start: &str, message: &dyn Display) {
        let mut text = Vec::new();
        let mut painter = self.painter(&mut text, self.is_error_terminal);
        let message = escaped(message.to_string().as_bytes());
        let written = painter
            .paint(style, start)
            .and_then(|()| painter.line(Style::Plain, message));
        if written.is_ok() {
            let _ = io::stderr().write_all(&text);
        }
    }
}

#[derive(Serialize)]
struct Note {
    note: String,
}

#[derive(Serialize)]
struct Warning {
    warning: String,
}

/// One line. Our results have only string keys, so serialization cannot fail. Characters that are not
/// seen as themselves are only in strings, where JSON has an escape for each.
pub fn to_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if !text.chars().any(is_unseen) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

pub fn isolation_word(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}

pub fn durability_word(durability: Durability) -> &'static str {
    match durability {
        Durability::Durable => "durable",
        Durability::Deferred => "deferred",
        Durability::Lazy => "lazy",
    }
}

pub fn conflicts_word(conflicts: Conflicts) -> &'static str {
    match conflicts {
        Conflicts::AtCommit => "at_commit",
        Conflicts::Early => "early",
    }
}

pub fn lock_mode_word(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Shared => "shared",
        LockMode::Exclusive => "exclusive",
    }
}

/// The user's name, or the number if there is no name.
pub fn user_name(user: u32) -> String {
    let account = atomdir::client::Account::of(user);
    account.map_or_else(
        || user.to_string(),
        |account| escaped(account.name.to_bytes()),
    )
}

/// `1 change`, `2 changes`.
pub fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}
