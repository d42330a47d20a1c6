use crate::output::{Painter, Show, Style, json, quoted};
use atomdir::{Change, ChangeLine, TransactionId};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// One line for each change: its letter and its path.
pub struct ChangeList<'a>(&'a [ChangeLine]);

impl<'a> ChangeList<'a> {
    pub fn new(lines: &'a [ChangeLine]) -> ChangeList<'a> {
        ChangeList(lines)
    }
}

impl Show for ChangeList<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for line in self.0 {
            let style = match line.change {
                Change::Added => Style::Added,
                Change::Deleted => Style::Removed,
                Change::Modified | Change::Renamed | Change::TypeChanged => Style::Place,
            };
            painter.paint(style, line.change.letter().to_string())?;
            writeln!(painter, " {}", name_of(line))?;
        }
        Ok(())
    }
}

impl Serialize for ChangeList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::changes(self.0).serialize(serializer)
    }
}

/// The changes of one transaction.
#[derive(Serialize)]
pub struct Listing<'a> {
    transaction: u64,
    changes: ChangeList<'a>,
}

impl<'a> Listing<'a> {
    pub fn new(transaction: TransactionId, lines: &'a [ChangeLine]) -> Listing<'a> {
        Listing {
            transaction: transaction.0,
            changes: ChangeList(lines),
        }
    }
}

impl Show for Listing<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.changes.show(painter)
    }
}

/// The path, or both of a rename. The store's root is `.`.
pub fn name_of(line: &ChangeLine) -> String {
    let name = |path: &[u8]| quoted(if path.is_empty() { b"." } else { path });
    match &line.from {
        Some(from) => format!("{} -> {}", name(from), name(&line.path)),
        None => name(&line.path),
    }
}
