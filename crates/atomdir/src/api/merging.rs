//! Texts in conflict, and merging them by lines.
//!
//! Invariants
//! 1. The transaction is changed only once every conflict that is to be merged has been merged. If
//!    writing a text fails, the transaction is rolled back to what it was.
//! 2. A merge takes the transaction's side of a conflict as it was listed. If others change the
//!    file after the list was made, so perhaps after it was read here, the commit is refused.

use super::error::{CommitError, Conflict, FileError, SavepointError};
use super::file::OpenOptions;
use super::history::Take;
use super::session::{AttributeChange, Links, Session};
use super::transaction::Transaction;
use crate::three_way::{
    InView, Replacement, Side, SnapshotContents, TEXT_LENGTH_MAX, ThreeWay, Versions, WhyNotMerged,
};
use atomdir_disk::Errno;
use atomdir_types::{Isolation, Kind};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SAVEPOINT: &[u8] = b"atomdir: before the merge";

/// A conflict that was not merged: see [`Take::Merge`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotMerged {
    /// The conflict, as it was listed.
    pub conflict: Conflict,
    /// The reason.
    pub why: WhyNotMerged,
}

impl fmt::Display for NotMerged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotMerged { conflict, why } = self;
        write!(formatter, "{conflict}; not merged, since {why}")
    }
}

/// One line about all of these: the first of them, and how many more there are.
pub(super) fn not_merged_message(not_merged: &[NotMerged]) -> String {
    let first = not_merged.first();
    let first = first.map_or_else(String::new, |first| format!(": {first}"));
    match not_merged.len().saturating_sub(1) {
        0 => format!("not merged line by line{first}"),
        more => format!("not merged line by line{first} (and {more} more)"),
    }
}

impl Transaction {
    /// The list that [`conflicts`](Transaction::conflicts) returned last; empty if there is none.
    pub fn listed_conflicts(&self) -> Result<Vec<Conflict>, CommitError> {
        self.session.listed_conflicts()
    }

    /// The versions of a text that is in conflict: the snapshot's, the transaction's and that of the
    /// others, for showing them or for merging them in another way. The inner error says why there are
    /// none.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("a", b"1\n")?;
    /// # tx.commit()?;
    /// let mine = store.begin()?;
    /// mine.write("a", b"2\n")?;
    /// let theirs = store.begin()?;
    /// theirs.write("a", b"3\n")?;
    /// theirs.commit()?;
    /// let texts = mine.texts_in_conflict(&mine.conflicts()?[0])?.expect("it is a text");
    /// assert_eq!((&texts.ancestor[..], &texts.theirs[..]), (&b"1\n"[..], &b"3\n"[..]));
    /// assert!(texts.merged().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn texts_in_conflict(
        &self,
        conflict: &Conflict,
    ) -> Result<Result<ThreeWay, WhyNotMerged>, CommitError> {
        if self.session.isolation() == Isolation::Serializable {
            return Ok(Err(WhyNotMerged::Serializable));
        }
        let path = conflict.path.as_os_str().as_bytes();
        let found = ThreeWay::look_up(&mut InConflict(&*self.session), path, conflict.what);
        found.map_err(|errno| self.unmerged("read", &conflict.path, errno))
    }

    /// Merges the texts for which `sides` says so, and returns the sides to take then.
    pub(super) fn merge_texts(&self, sides: &[Take]) -> Result<Vec<Take>, CommitError> {
        let mut merged = Vec::new();
        let mut not_merged = Vec::new();
        for conflict in self.listed_for(sides)? {
            let text = self.texts_in_conflict(&conflict)?.and_then(|texts| {
                let merged = texts.merged();
                let merged = merged.map_err(|marked| texts.why_marked(marked))?;
                Ok((texts, merged))
            });
            match text {
                Ok(text) => merged.push(text),
                Err(why) => not_merged.push(NotMerged { conflict, why }),
            }
        }
        if !not_merged.is_empty() {
            return Err(CommitError::NotMerged { not_merged });
        }
        self.write_merged(&merged)?;
        let taken = sides.iter().map(|side| match side {
            Take::Merge => Take::Mine,
            side => *side,
        });
        Ok(taken.collect())
    }

    /// The conflicts that are to be merged, of the list that was made last.
    fn listed_for(&self, sides: &[Take]) -> Result<Vec<Conflict>, CommitError> {
        let listed = self.listed_conflicts()?;
        if listed.len() < sides.len() {
            let (given, listed) = (sides.len(), listed.len());
            return Err(CommitError::Refused(format!(
                "{given} sides were given, and {listed} conflicts were listed last: list them again"
            )));
        }
        let all = listed.into_iter().zip(sides);
        let wanted = all.filter(|(_, side)| **side == Take::Merge);
        Ok(wanted.map(|(conflict, _)| conflict).collect())
    }

    fn write_merged(&self, merged: &[(ThreeWay, Vec<u8>)]) -> Result<(), CommitError> {
        self.session.set_savepoint(SAVEPOINT).map_err(not_kept)?;
        for (texts, text) in merged {
            if let Err(errno) = overwrite(&*self.session, &texts.path, (&texts.mine, text)) {
                let error = self.unmerged("write", &texts.path, errno);
                self.session.roll_back(SAVEPOINT).map_err(not_kept)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn unmerged(&self, operation: &'static str, path: &Path, errno: Errno) -> CommitError {
        if errno == Errno::STALE {
            return CommitError::Ended;
        }
        match FileError::of(&*self.session, operation, path, errno) {
            FileError::Conflict { conflicts, .. } => CommitError::Conflict { conflicts },
            error => CommitError::Io(format!("not merged line by line: {error}")),
        }
    }
}

fn not_kept(error: SavepointError) -> CommitError {
    match error {
        SavepointError::Ended => CommitError::Ended,
        SavepointError::Store(error) => CommitError::Store(error),
        SavepointError::Io(_) => CommitError::Io(error.to_string()),
        error => CommitError::Refused(error.to_string()),
    }
}

/// In place, so that the file keeps its attributes and its other names.
pub(crate) fn overwrite(
    session: &dyn Session,
    path: &Path,
    (found, text): (&[u8], &[u8]),
) -> Result<(), Errno> {
    let mut options = OpenOptions::new();
    options.write(true).follow(false);
    let file = session.files().open(path, &options)?;
    let Replacement { range, cut } = Replacement::new(found, text);
    if !range.is_empty() {
        file.write_at(&text[range.clone()], range.start as u64)?;
    }
    if cut.is_some() {
        file.set_attributes(&AttributeChange {
            length: cut,
            ..AttributeChange::default()
        })?;
    }
    Ok(())
}

/// The versions of what a transaction has in conflict.
pub(crate) struct InConflict<'a>(pub &'a dyn Session);

impl Versions for InConflict<'_> {
    type Error = Errno;

    fn on_side(&mut self, side: Side, path: &[u8]) -> Result<Option<SnapshotContents>, Errno> {
        self.0.object_of(side, path, TEXT_LENGTH_MAX)
    }

    fn in_view(&mut self, path: &[u8]) -> Result<InView, Errno> {
        let files = self.0.files();
        let found = match files.metadata(path_of(path), Links::Keep) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(InView::Nothing),
            Err(Errno::STALE) => return Ok(InView::Lost),
            found => found?,
        };
        if found.kind != Kind::File {
            return Ok(InView::NoFile);
        }
        if found.len > TEXT_LENGTH_MAX {
            return Ok(InView::LongFile);
        }
        let mut options = OpenOptions::new();
        let file = files.open(path_of(path), options.read(true).follow(false))?;
        let length = usize::try_from(found.len).map_err(|_| Errno::FBIG)?;
        let mut contents = vec![0; length];
        let count = match file.read_at(&mut contents, 0) {
            Err(Errno::STALE) => return Ok(InView::Lost),
            count => count?,
        };
        contents.truncate(count);
        Ok(InView::File(contents))
    }
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
