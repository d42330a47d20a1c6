//! Undos where this process has the store open: those of a program, and those of commits that nobody
//! has confirmed. Also git's index, in the way of a commit.

use super::{
    Changes, File, LENGTH_MAX, Object, Resolution, Rewrite, Sight, add_changes, equal_index,
    resolve,
};
use atomdir_disk::{Errno, Kind, LinuxDisk};
use atomdir_engine::{
    BeginOptions, Caller, NodeId, NotConfirmed, Sequence, SetAttributes, Store, UndoError, Undone,
};
use atomdir_protocol::{Conflict, Timestamp, Undo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Transaction = atomdir_engine::Transaction<LinuxDisk>;
type Undoing = Result<Undone<LinuxDisk>, UndoError>;

/// The newest state of the store, and one of the past.
struct Views {
    now: Arc<Transaction>,
    before: Arc<Transaction>,
    /// The view does not show how these were.
    unknown: BTreeSet<Vec<u8>>,
}

impl Sight for Views {
    fn now(&self, path: &[u8]) -> Object {
        // Whoever changes it after this changes its change time as well.
        let seen = self.now.seen_in_base(path);
        match (look(&self.now, path), seen) {
            (Object::File(file), Ok(Some((inode, changed)))) => Object::File(File {
                inode,
                changed,
                ..file
            }),
            (Object::File(_), _) => Object::Unknown,
            (object, _) => object,
        }
    }

    fn instead(&self, path: &[u8]) -> Object {
        match self.unknown.contains(path) {
            true => Object::Unknown,
            false => look(&self.before, path),
        }
    }
}

/// The process that has the store open may read all of it.
fn caller(transaction: &Transaction) -> Caller {
    Caller {
        user: transaction.owner(),
        group: u32::MAX,
    }
}

/// The object of a view at a path. The view has no mount.
fn look(transaction: &Transaction, path: &[u8]) -> Object {
    let found = || {
        let Some(node) = transaction.resolve(path)? else {
            return Ok(Object::Nothing);
        };
        let attributes = transaction.attributes(node)?;
        Ok(match attributes.kind {
            Kind::Directory => Object::Directory,
            Kind::Symlink => Object::Symlink(transaction.read_link(node)?),
            Kind::File if attributes.length <= LENGTH_MAX => Object::File(File {
                is_executable: attributes.mode & 0o100 != 0,
                contents: transaction.read_whole_unmapped(node, caller(transaction))?,
                inode: 0,
                changed: Timestamp::default(),
            }),
            _ => Object::Unknown,
        })
    };
    match found() {
        Ok(object) => object,
        Err(Errno::NOENT | Errno::NOTDIR) => Object::Nothing,
        Err(_) => Object::Unknown,
    }
}

/// Like `Store::undo_choosing`, but what programs write again by themselves is no conflict.
pub(crate) fn take_back(store: &Store<LinuxDisk>, undo: &Undo, options: &BeginOptions) -> Undoing {
    match store.undo_choosing(undo, None, options.clone()) {
        Err(UndoError::Conflict(conflicts)) => {
            let resolved = take_back_resolved(store, (undo, &conflicts), options);
            resolved.ok_or(UndoError::Conflict(conflicts))
        }
        undone => undone,
    }
}

/// `Store::take_back_due`, likewise.
pub(crate) fn take_back_unconfirmed(store: &Store<LinuxDisk>) -> Vec<NotConfirmed> {
    store.take_back_due_or(&|commit, conflicts, options| {
        let undo = Undo {
            commits: vec![commit],
            ..Undo::default()
        };
        let undone = take_back_resolved(store, (&undo, conflicts), options)?;
        Some(undone.transaction)
    })
}

fn take_back_resolved(
    store: &Store<LinuxDisk>,
    (undo, conflicts): (&Undo, &[Conflict]),
    options: &BeginOptions,
) -> Option<Undone<LinuxDisk>> {
    let resolution = compare(store, (undo, conflicts), options)?;
    let undone = store.undo_choosing(&resolution.of(undo)?, None, options.clone());
    let mut undone = undone.ok()?;
    if rewrite(&undone.transaction, &resolution).is_none() {
        store.abort(&undone.transaction);
        return None;
    }
    undone
        .sided
        .retain(|conflict| !resolution.leaves(&conflict.path));
    Some(undone)
}

/// Whether git's index in the store is equal to that of a transaction, which changes with `changes`.
pub(crate) fn has_equal_index(
    store: &Store<LinuxDisk>,
    transaction: &Arc<Transaction>,
    (path, changes): (&[u8], &Changes),
    options: BeginOptions,
) -> bool {
    let Ok(now) = store.begin_in_base(options) else {
        return false;
    };
    let views = Views {
        now,
        before: transaction.clone(),
        unknown: BTreeSet::new(),
    };
    let is_equal = equal_index(&views, path, changes).is_some();
    store.abort(&views.now);
    is_equal
}

fn compare(
    store: &Store<LinuxDisk>,
    (undo, conflicts): (&Undo, &[Conflict]),
    options: &BeginOptions,
) -> Option<Resolution> {
    let mut changed = BTreeMap::new();
    let listed = store.for_each_commit(|commit| {
        if undo.commits.contains(&commit.summary.sequence) {
            let lines = commit.changes.into_iter().map(|line| line.written_out());
            changed.insert(commit.summary.sequence, lines.collect());
        }
    });
    listed.ok()?;
    let first = *changed.keys().next()?;
    let mut changes = Changes::new();
    for lines in changed.into_values() {
        add_changes(&mut changes, lines);
    }
    let before = Sequence(first.0.saturating_sub(1));
    let past = store.past(before, options.clone()).ok()?;
    let resolution = store.begin_in_base(options.clone()).ok().and_then(|now| {
        let unknown = past.not_as_then.into_iter().map(|conflict| conflict.path);
        let views = Views {
            now,
            before: past.transaction.clone(),
            unknown: unknown.collect(),
        };
        let resolution = resolve(&views, conflicts, &changes);
        store.abort(&views.now);
        resolution
    });
    store.abort(&past.transaction);
    resolution
}

fn rewrite(transaction: &Transaction, resolution: &Resolution) -> Option<()> {
    for one in &resolution.rewrites {
        write(transaction, one)?;
    }
    for directory in &resolution.emptied {
        let (above, name) = place(transaction, directory)?;
        // It stays if others have put something into it.
        let _ = transaction.remove_directory(above, name);
    }
    Some(())
}

fn place<'a>(transaction: &Transaction, path: &'a [u8]) -> Option<(NodeId, &'a [u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (above, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    Some((transaction.resolve(above).ok()??, name))
}

/// Writes to the view of an undo. `None`: it shows something else than was compared, or cannot be
/// written.
fn write(transaction: &Transaction, rewrite: &Rewrite) -> Option<()> {
    let Object::File(file) = look(transaction, &rewrite.path) else {
        return None;
    };
    if file.contents != rewrite.found {
        return None;
    }
    let Some(contents) = &rewrite.contents else {
        let (above, name) = place(transaction, &rewrite.path)?;
        return transaction.unlink(above, name).ok();
    };
    let node = transaction.resolve(&rewrite.path).ok()??;
    let cut = SetAttributes {
        length: Some(contents.len() as u64),
        ..SetAttributes::default()
    };
    transaction.write(node, 0, contents, false).ok()?;
    let set = transaction.set_attributes(node, cut, caller(transaction));
    set.ok().map(drop)
}
