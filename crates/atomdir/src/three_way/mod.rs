//! Merges what a transaction and others have changed in the same text, line by line.
//!
//! [`ThreeWay::look_up`] finds the three versions of a text in conflict. The caller reads them, in its
//! own way, and writes what [`ThreeWay::merged`] returns into the view. A commit that then takes the
//! transaction's side in the conflict keeps the changes of both sides.
//!
//! Invariants
//! 1. A merge loses no line that one side has changed: where both have changed the same lines
//!    differently, it returns no text to commit.
//! 2. A text is merged only if all three versions are known. If nobody knows what the text was before
//!    both sides changed it, both are offered whole, between markers.
//! 3. The versions may be read after others have changed the file once more. Then the conflict is not
//!    as it was listed, and the commit is refused.

mod overwrite;
#[cfg(test)]
mod tests;

pub use crate::requests::SnapshotContents;
pub use atomdir_types::Side;
pub use overwrite::Replacement;

use atomdir_types::{ConflictKind, Kind};
use diffy::{ConflictStyle, IncompleteHunkStyle, MergeOptions};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longer texts are neither compared nor merged, since all versions are held in memory.
pub const TEXT_LENGTH_MAX: u64 = 16 << 20;

const MARKER_LENGTH: usize = 7;

/// A file with a zero byte in this many bytes at its beginning is no text.
const BINARY_PREFIX_LENGTH: usize = 8000;

/// Whether a file with these contents is no text.
pub fn is_binary(contents: &[u8]) -> bool {
    let mut prefix = contents.iter().take(BINARY_PREFIX_LENGTH);
    prefix.any(|byte| *byte == 0)
}

/// Reads the versions of an object that is in conflict.
pub trait Versions {
    /// Why one cannot be read.
    type Error;

    /// What this side has at the path, with a file's contents if they have at most
    /// [`TEXT_LENGTH_MAX`] bytes.
    fn on_side(&mut self, side: Side, path: &[u8])
    -> Result<Option<SnapshotContents>, Self::Error>;

    /// What the transaction's view has there.
    fn in_view(&mut self, path: &[u8]) -> Result<InView, Self::Error>;
}

/// What a view has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InView {
    /// A file with these contents.
    File(Vec<u8>),
    /// A file with more than [`TEXT_LENGTH_MAX`] bytes.
    LongFile,
    /// Something that is no file.
    NoFile,
    /// Nothing.
    Nothing,
    /// A file of which the transaction has not changed the contents, and which others have replaced or
    /// removed. So these cannot be read any more.
    Lost,
}

/// Why a conflict was not merged line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNotMerged {
    /// Both sides have changed the same lines.
    SameLines {
        /// The text with both sides between markers, as git's `diff3` style has them.
        marked: Vec<u8>,
    },
    /// The conflict is not about the contents of a file.
    NotContents,
    /// An outside writer has changed or replaced the file, and what it was before is not known.
    AncestorUnknown {
        /// Both texts between markers.
        marked: Vec<u8>,
    },
    /// Others have moved or removed the file.
    TheirsGone,
    /// The transaction has moved or removed the file.
    MineGone,
    /// The transaction has not changed the contents, and others have replaced the file.
    MineLost,
    /// A version is longer than 16 MiB.
    TooLong,
    /// A version is something else than a file.
    NotFile,
    /// A version has a zero byte at its beginning.
    NotText,
    /// The transaction is serializable. To merge it would have to read what others have changed, and
    /// could not be committed any more.
    Serializable,
}

impl fmt::Display for WhyNotMerged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            WhyNotMerged::SameLines { .. } => "both sides have changed the same lines",
            WhyNotMerged::NotContents => "the conflict is not about its contents",
            WhyNotMerged::TheirsGone => "others have moved or removed it",
            WhyNotMerged::AncestorUnknown { .. } => {
                "an outside writer has changed it, and what it was before is not known"
            }
            WhyNotMerged::MineGone => "the transaction has moved or removed it",
            WhyNotMerged::MineLost => {
                "the transaction has not changed its contents, and others have replaced it"
            }
            WhyNotMerged::TooLong => "it is too long",
            WhyNotMerged::NotFile => "it is not a file",
            WhyNotMerged::NotText => "it is not text",
            WhyNotMerged::Serializable => {
                "a serializable transaction cannot read what others have changed"
            }
        })
    }
}

/// The versions of a text in a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreeWay {
    /// The path, relative to the store's root.
    pub path: PathBuf,
    /// The snapshot's; empty if the snapshot has no such file, or if it is not known.
    pub ancestor: Vec<u8>,
    /// Whether the ancestor is known. An outside writer may have changed the file, and only small
    /// files are remembered.
    pub ancestor_is_known: bool,
    /// The transaction's.
    pub mine: Vec<u8>,
    /// What others have made of it.
    pub theirs: Vec<u8>,
}

impl ThreeWay {
    /// Looks up the versions of what is in conflict at this path. The inner error says why they
    /// cannot be merged.
    pub fn look_up<V: Versions>(
        versions: &mut V,
        path: &[u8],
        what: ConflictKind,
    ) -> Result<Result<ThreeWay, WhyNotMerged>, V::Error> {
        if what == ConflictKind::Removed {
            return Ok(Err(WhyNotMerged::TheirsGone));
        }
        if !what.may_have_texts() {
            return Ok(Err(WhyNotMerged::NotContents));
        }
        let ancestor = versions.on_side(Side::Snapshot, path)?;
        let Some(theirs) = versions.on_side(Side::Newest, path)? else {
            return Ok(Err(WhyNotMerged::TheirsGone));
        };
        let ancestor = match ancestor {
            Some(found) if found.object.changed_outside => None,
            found => Some(found),
        };
        let mine = match versions.in_view(path)? {
            InView::File(contents) => text(contents),
            InView::LongFile => Err(WhyNotMerged::TooLong),
            InView::NoFile => Err(WhyNotMerged::NotFile),
            InView::Nothing => Err(WhyNotMerged::MineGone),
            InView::Lost => Err(WhyNotMerged::MineLost),
        };
        let ancestor_is_known = ancestor.is_some();
        let ancestor = ancestor.flatten().map_or(Ok(Vec::new()), text_of);
        let texts = mine.and_then(|mine| Ok((mine, ancestor?, text_of(theirs)?)));
        Ok(texts.map(|(mine, ancestor, theirs)| ThreeWay {
            path: OsStr::from_bytes(path).into(),
            ancestor,
            ancestor_is_known,
            mine,
            theirs,
        }))
    }

    /// Why [`merged`](Self::merged) has returned an error, with the text that it returned.
    pub fn why_marked(&self, marked: Vec<u8>) -> WhyNotMerged {
        match self.ancestor_is_known {
            true => WhyNotMerged::SameLines { marked },
            false => WhyNotMerged::AncestorUnknown { marked },
        }
    }

    /// The text with the changes of both sides. If both have changed the same lines, or the ancestor
    /// is not known, the error is the text with both between markers.
    pub fn merged(&self) -> Result<Vec<u8>, Vec<u8>> {
        if !self.ancestor_is_known {
            return match self.mine == self.theirs {
                true => Ok(self.mine.clone()),
                false => Err(both_whole(&self.mine, &self.theirs)),
            };
        }
        let mut options = MergeOptions::new();
        options.set_conflict_style(ConflictStyle::Diff3);
        options.set_incomplete_hunk_style(IncompleteHunkStyle::Git);
        options.merge_bytes(&self.ancestor, &self.mine, &self.theirs)
    }
}

/// Both texts between markers, as git writes them.
fn both_whole(mine: &[u8], theirs: &[u8]) -> Vec<u8> {
    let mut marked = Vec::new();
    for (mark, label, text) in [(b"<", &b" ours"[..], mine), (b"=", b"", theirs)] {
        marked.extend_from_slice(&mark.repeat(MARKER_LENGTH));
        marked.extend_from_slice(label);
        marked.push(b'\n');
        marked.extend_from_slice(text);
        if !text.is_empty() && !text.ends_with(b"\n") {
            marked.push(b'\n');
        }
    }
    marked.extend_from_slice(&b">".repeat(MARKER_LENGTH));
    marked.extend_from_slice(b" theirs\n");
    marked
}

fn text_of(found: SnapshotContents) -> Result<Vec<u8>, WhyNotMerged> {
    match found.object.kind {
        Kind::File if found.object.too_long => Err(WhyNotMerged::TooLong),
        Kind::File => text(found.contents),
        _ => Err(WhyNotMerged::NotFile),
    }
}

fn text(contents: Vec<u8>) -> Result<Vec<u8>, WhyNotMerged> {
    if contents.len() as u64 > TEXT_LENGTH_MAX {
        Err(WhyNotMerged::TooLong)
    } else if is_binary(&contents) {
        Err(WhyNotMerged::NotText)
    } else {
        Ok(contents)
    }
}
