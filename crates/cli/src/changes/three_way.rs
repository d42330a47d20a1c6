//! The versions of a text in a conflict: the snapshot's, the transaction's, and the others'.

use super::unified::{Comparison, is_binary};
use super::version::{Contents, Version};
use crate::context::Connected;
use crate::error::Error;
use crate::output::{Painter, Style, quoted};
use atomdir::client::{Conflict, SnapshotContents, Transaction};
use atomdir::{ConflictKind, Kind};
use std::io;

/// Longer texts are neither compared nor merged, since all versions are held in memory.
const TEXT_LENGTH_MAX: u64 = 16 << 20;

/// The versions of a text in a conflict.
pub struct ThreeWay {
    pub path: Vec<u8>,
    /// The snapshot's; empty if the snapshot has no such file.
    pub ancestor: Vec<u8>,
    pub mine: Vec<u8>,
    pub theirs: Vec<u8>,
}

impl ThreeWay {
    /// Looks the versions up. The inner error says why they cannot be compared.
    pub fn look_up(
        connected: &mut Connected,
        transaction: &Transaction,
        conflict: &Conflict,
    ) -> Result<Result<ThreeWay, &'static str>, Error> {
        let (id, path) = (transaction.id, &conflict.path);
        if !matches!(conflict.what, ConflictKind::Contents | ConflictKind::Entry) {
            return Ok(Err("the conflict is not about its contents"));
        }
        let connection = &mut connected.connection;
        let ancestor = connection.snapshot_object(id, path, TEXT_LENGTH_MAX)?;
        let theirs = connection.newest_object(id, path, TEXT_LENGTH_MAX)?;
        let Some(theirs) = theirs else {
            return Ok(Err("others have moved or removed it"));
        };
        let old = ancestor.as_ref().map(|found| found.object.object);
        if conflict.what == ConflictKind::Contents && old != Some(theirs.object.object) {
            return Ok(Err(
                "others have moved or replaced it, or it was moved here",
            ));
        }
        if ancestor
            .as_ref()
            .is_some_and(|found| found.object.changed_outside)
        {
            return Ok(Err(
                "an outside writer has changed it, so what it was before is not known",
            ));
        }
        let Some(mine) = Version::in_view(transaction, path)? else {
            return Ok(Err("the transaction has moved or removed it"));
        };
        let mine = match (mine.kind, mine.contents) {
            (Kind::File, Contents::Bytes(bytes)) => text(bytes),
            (Kind::File, _) => Err("it is too long"),
            _ => Err("it is not a file"),
        };
        let ancestor = ancestor.map_or(Ok(Vec::new()), text_of);
        let texts = mine.and_then(|mine| Ok((mine, ancestor?, text_of(theirs)?)));
        Ok(texts.map(|(mine, ancestor, theirs)| ThreeWay {
            path: path.clone(),
            ancestor,
            mine,
            theirs,
        }))
    }

    /// Shows what each side has changed.
    pub fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.show_side(painter, "others", &self.theirs)?;
        self.show_side(painter, "this transaction", &self.mine)
    }

    fn show_side(&self, painter: &mut Painter<'_>, who: &str, text: &[u8]) -> io::Result<()> {
        painter.line(Style::Heading, format!("--- {}", quoted(&self.path)))?;
        painter.line(Style::Heading, format!("+++ changed by {who}"))?;
        Comparison::new(&self.ancestor, text).show_hunks(painter)
    }

    /// What others have changed, and what the transaction has, as unified diffs.
    pub fn patches(&self) -> [Vec<u8>; 2] {
        [("others", &self.theirs), ("this transaction", &self.mine)].map(|(who, text)| {
            let mut patch = Vec::new();
            let shown = self.show_side(&mut Painter::new(&mut patch), who, text);
            shown.expect("a vector takes everything");
            patch
        })
    }
}

fn text_of(found: SnapshotContents) -> Result<Vec<u8>, &'static str> {
    match found.object.kind {
        Kind::File if found.object.too_long => Err("it is too long"),
        Kind::File => text(found.contents),
        _ => Err("it is not a file"),
    }
}

fn text(contents: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    if contents.len() as u64 > TEXT_LENGTH_MAX {
        Err("it is too long")
    } else if is_binary(&contents) {
        Err("it is not text")
    } else {
        Ok(contents)
    }
}
