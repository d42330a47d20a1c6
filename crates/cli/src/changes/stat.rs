//! How many lines each change adds and removes.

use super::{Difference, Lines, name_of};
use crate::output::{Painter, Show, Style, counted, json};
use atomdir::TransactionId;
use atomdir::client::ChangeLine;
use serde::Serialize;
use std::io::{self, Write};

/// The length of the longest bar.
const BAR_LENGTH_MAX: u64 = 40;

#[derive(Serialize)]
pub struct Stat<'a> {
    #[serde(flatten)]
    subject: Subject,
    changes: Vec<StatLine<'a>>,
}

/// Whose changes they are.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Subject {
    Transaction {
        transaction: u64,
    },
    /// `None`: now.
    Commits {
        from: u64,
        to: Option<u64>,
    },
}

impl From<TransactionId> for Subject {
    fn from(id: TransactionId) -> Subject {
        Subject::Transaction { transaction: id.0 }
    }
}

#[derive(Serialize)]
struct StatLine<'a> {
    #[serde(flatten)]
    change: json::Change<'a>,
    /// `None` if the difference cannot be counted in lines.
    lines_added: Option<u64>,
    lines_removed: Option<u64>,
    #[serde(skip)]
    line: &'a ChangeLine,
    #[serde(skip)]
    lines: Lines,
}

impl<'a> Stat<'a> {
    pub fn new(subject: Subject) -> Stat<'a> {
        Stat {
            subject,
            changes: Vec::new(),
        }
    }

    pub fn push(&mut self, difference: &Difference<'a>) {
        let lines = difference.lines();
        let (lines_added, lines_removed) = match lines {
            Lines::Counted { added, removed } => (Some(added), Some(removed)),
            Lines::Binary | Lines::TooLong | Lines::ChangedOutside => (None, None),
        };
        self.changes.push(StatLine {
            change: difference.line.into(),
            lines_added,
            lines_removed,
            line: difference.line,
            lines,
        });
    }
}

impl Show for Stat<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let names: Vec<String> = self.changes.iter().map(|line| name_of(line.line)).collect();
        let width = names
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0);
        let most = self.changes.iter().map(StatLine::total).max().unwrap_or(0);
        for (line, name) in self.changes.iter().zip(&names) {
            write!(painter, " {name:width$} | ")?;
            line.show_lines(painter, most)?;
        }
        let sum = |of: fn(&StatLine<'_>) -> Option<u64>| self.changes.iter().filter_map(of).sum();
        let (added, removed): (u64, u64) =
            (sum(|line| line.lines_added), sum(|line| line.lines_removed));
        writeln!(
            painter,
            " {}, {} added, {} removed",
            counted(self.changes.len() as u64, "change"),
            counted(added, "line"),
            counted(removed, "line"),
        )
    }
}

impl StatLine<'_> {
    fn total(&self) -> u64 {
        self.lines_added.unwrap_or(0) + self.lines_removed.unwrap_or(0)
    }

    fn show_lines(&self, painter: &mut Painter<'_>, most: u64) -> io::Result<()> {
        let (added, removed) = match self.lines {
            Lines::Counted { added, removed } => (added, removed),
            Lines::Binary => return painter.line(Style::Plain, "binary"),
            Lines::TooLong => return painter.line(Style::Plain, "too long to compare here"),
            Lines::ChangedOutside => {
                return painter.line(Style::Plain, "changed outside meanwhile");
            }
        };
        write!(painter, "{} ", added + removed)?;
        painter.paint(Style::Added, bar("+", added, most))?;
        painter.line(Style::Removed, bar("-", removed, most))
    }
}

/// Scales the bar if the longest would not fit. The bar of a nonzero count is
/// never empty.
fn bar(sign: &str, count: u64, most: u64) -> String {
    let length = if most <= BAR_LENGTH_MAX {
        count
    } else {
        (count * BAR_LENGTH_MAX).div_ceil(most)
    };
    sign.repeat(length as usize)
}
