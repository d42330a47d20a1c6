//! The versions of a text in a conflict: the transaction's and the others'.

use super::unified::Comparison;
use super::version::{Contents, Version};
use crate::context::Connected;
use crate::error::Error;
use crate::output::{Painter, Style, quoted};
use atomdir::Kind;
use atomdir::client::three_way::{
    InView, Side, SnapshotContents, TEXT_LENGTH_MAX, ThreeWay, Versions, WhyNotMerged,
};
use atomdir::client::{Conflict, Transaction};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Looks up the versions of the text. The inner error says why they cannot be compared.
pub fn look_up(
    connected: &mut Connected,
    view: &Transaction,
    conflict: &Conflict,
) -> Result<Result<ThreeWay, WhyNotMerged>, Error> {
    let mut versions = InConflict { connected, view };
    ThreeWay::look_up(&mut versions, &conflict.path, conflict.what)
}

struct InConflict<'a> {
    connected: &'a mut Connected,
    view: &'a Transaction,
}

impl Versions for InConflict<'_> {
    type Error = Error;

    fn on_side(&mut self, side: Side, path: &[u8]) -> Result<Option<SnapshotContents>, Error> {
        let (connection, id) = (&mut self.connected.connection, self.view.id);
        Ok(connection.object_of((id, side), path, TEXT_LENGTH_MAX)?)
    }

    fn in_view(&mut self, path: &[u8]) -> Result<InView, Error> {
        let mine = match Version::in_view(self.view, path) {
            Err(Error::View {
                errno: Errno::STALE,
                ..
            }) => return Ok(InView::Lost),
            Ok(None) => return Ok(InView::Nothing),
            Ok(Some(mine)) => mine,
            Err(error) => return Err(error),
        };
        Ok(match (mine.kind, mine.contents) {
            (Kind::File, Contents::Bytes(bytes)) => InView::File(bytes),
            (Kind::File, _) => InView::LongFile,
            _ => InView::NoFile,
        })
    }
}

/// Shows what each side has changed, or how they differ if nobody knows what was there before.
pub fn show_sides(texts: &ThreeWay, painter: &mut Painter<'_>) -> io::Result<()> {
    if !texts.ancestor_is_known {
        return show_apart(texts, painter);
    }
    show_side(texts, painter, "others", &texts.theirs)?;
    show_side(texts, painter, "this transaction", &texts.mine)
}

fn show_side(
    texts: &ThreeWay,
    painter: &mut Painter<'_>,
    who: &str,
    text: &[u8],
) -> io::Result<()> {
    painter.line(Style::Heading, format!("--- {}", name(texts)))?;
    painter.line(Style::Heading, format!("+++ changed by {who}"))?;
    Comparison::new(&texts.ancestor, text).show_hunks(painter)
}

fn show_apart(texts: &ThreeWay, painter: &mut Painter<'_>) -> io::Result<()> {
    painter.line(Style::Heading, format!("--- {}, of others", name(texts)))?;
    painter.line(Style::Heading, "+++ of this transaction")?;
    Comparison::new(&texts.theirs, &texts.mine).show_hunks(painter)
}

fn name(texts: &ThreeWay) -> String {
    quoted(texts.path.as_os_str().as_bytes())
}

/// The texts as unified diffs.
pub enum Patches {
    /// The changes of each side.
    OfBoth { theirs: Vec<u8>, mine: Vec<u8> },
    /// How the transaction's text differs from that of the others: what was there before is not
    /// known.
    Apart(Vec<u8>),
}

pub fn patches(texts: &ThreeWay) -> Patches {
    let write = |show: &dyn Fn(&mut Painter<'_>) -> io::Result<()>| {
        let mut patch = Vec::new();
        let shown = show(&mut Painter::new(&mut patch));
        shown.expect("a vector takes everything");
        patch
    };
    if !texts.ancestor_is_known {
        return Patches::Apart(write(&|painter| show_apart(texts, painter)));
    }
    Patches::OfBoth {
        theirs: write(&|painter| show_side(texts, painter, "others", &texts.theirs)),
        mine: write(&|painter| show_side(texts, painter, "this transaction", &texts.mine)),
    }
}
