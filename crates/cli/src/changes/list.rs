use super::{Right, Rights};
use crate::output::{Painter, Show, Style, json, quoted};
use atomdir::client::ChangeLine;
use atomdir::{Change, TransactionId};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// One line for each change: its letter and its path.
pub struct ChangeList<'a> {
    lines: &'a [ChangeLine],
    rights: Option<&'a Rights>,
}

impl<'a> ChangeList<'a> {
    pub fn new(lines: &'a [ChangeLine]) -> ChangeList<'a> {
        let rights = None;
        ChangeList { lines, rights }
    }

    /// Also shows which changes give programs rights.
    pub fn with_rights(lines: &'a [ChangeLine], rights: &'a Rights) -> ChangeList<'a> {
        let rights = Some(rights);
        ChangeList { lines, rights }
    }
}

impl Show for ChangeList<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for (place, line) in self.lines.iter().enumerate() {
            let right = self.rights.and_then(|rights| rights.of(place));
            show_line(line, right, painter)?;
        }
        Ok(())
    }
}

pub(super) fn show_line(
    line: &ChangeLine,
    right: Option<&Right>,
    painter: &mut Painter<'_>,
) -> io::Result<()> {
    let style = match line.change {
        Change::Added => Style::Added,
        Change::Deleted => Style::Removed,
        Change::Modified | Change::Renamed | Change::TypeChanged => Style::Position,
    };
    painter.paint(style, line.change.letter().to_string())?;
    write!(painter, " {}", name_of(line))?;
    if let Some(right) = right {
        painter.paint(Style::Removed, format!(" ({right})"))?;
    }
    writeln!(painter)
}

impl Serialize for ChangeList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::changes(self.lines, self.rights).serialize(serializer)
    }
}

/// The changes of one transaction.
#[derive(Serialize)]
pub struct Listing<'a> {
    transaction: u64,
    changes: ChangeList<'a>,
}

impl<'a> Listing<'a> {
    pub fn new(transaction: TransactionId, changes: ChangeList<'a>) -> Listing<'a> {
        Listing {
            transaction: transaction.0,
            changes,
        }
    }
}

impl Show for Listing<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.changes.show(painter)
    }
}

/// The path, or both paths of a rename. The store's root is `.`.
pub fn name_of(line: &ChangeLine) -> String {
    let name = |path: &[u8]| quoted(if path.is_empty() { b"." } else { path });
    match &line.from {
        Some(from) => format!("{} -> {}", name(from), name(&line.path)),
        None => name(&line.path),
    }
}
