//! Describes in words what a patch in git's format cannot express.

use super::FilePatch;
use crate::changes::difference::{described, kind_word, xattr_changes};
use crate::changes::version::Version;
use crate::output::{quoted, time};
use atomdir::Kind;

/// Each note is one line that starts with its path.
pub(super) fn notes(patch: &FilePatch<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if patch.is_gone {
        let name = quoted(patch.new_path);
        return vec![format!(
            "{name}: removed or replaced by an outside writer since the transaction began; its \
             changes cannot be shown"
        )];
    }
    match (&patch.old, &patch.new) {
        (None, Some(new)) => created(&mut notes, patch, new),
        (Some(old), None) if is_for_git(old) || is_implied(patch, old) => {}
        (Some(old), None) => notes.push(format!("deleted {}", described(old))),
        (Some(old), Some(new)) if old.kind != new.kind => {
            if !is_for_git(old) {
                notes.push(format!("deleted {}", described(old)));
            }
            created(&mut notes, patch, new);
        }
        (Some(old), Some(new)) => changed(&mut notes, patch, old, new),
        (None, None) => {}
    }
    if let Some(old) = patch.old.as_ref().filter(|old| old.is_of_now) {
        let contents = patch.new.as_ref().map(|new| &new.contents);
        let compared = match contents.is_some_and(|contents| old.contents.is_same(contents)) {
            true => "",
            false => "; compared with what is there now:",
        };
        notes.push(format!(
            "changed outside since the transaction began{compared}"
        ));
    }
    let name = match (&patch.new, patch.new_path) {
        (None, _) => patch.old_path,
        (Some(_), new_path) => new_path,
    };
    let name = quoted(if name.is_empty() { b"." } else { name });
    notes.iter().map(|note| format!("{name}: {note}")).collect()
}

fn created(notes: &mut Vec<String>, patch: &FilePatch<'_>, new: &Version) {
    if !is_for_git(new) {
        if !is_implied(patch, new) {
            notes.push(format!("new {}", described(new)));
        }
    } else if !says_mode(new) {
        notes.push(described(new));
    }
    // `git apply` makes files that belong to the user who applies the patch.
    let own = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if (new.user, new.group) != own {
        notes.push(format!("owner {}:{}", new.user, new.group));
    }
    for (name, change) in xattr_changes(None, Some(new)) {
        notes.push(format!("{change} extended attribute {}", quoted(name)));
    }
}

fn changed(notes: &mut Vec<String>, patch: &FilePatch<'_>, old: &Version, new: &Version) {
    if patch.old_path != patch.new_path && !is_for_git(new) {
        notes.push(format!(
            "{} renamed from {}",
            kind_word(new.kind),
            quoted(patch.old_path)
        ));
    }
    if old.device_number != new.device_number {
        notes.push(format!("{} instead of {}", described(new), described(old)));
    } else if old.mode != new.mode && !(says_mode(old) && says_mode(new)) {
        notes.push(format!("mode {:04o} instead of {:04o}", new.mode, old.mode));
    }
    if (old.user, old.group) != (new.user, new.group) {
        notes.push(format!(
            "owner {}:{} instead of {}:{}",
            new.user, new.group, old.user, old.group
        ));
    }
    for (name, change) in xattr_changes(Some(old), Some(new)) {
        notes.push(format!("{change} extended attribute {}", quoted(name)));
    }
    // Other changes also set a new time, and so does applying a patch.
    let is_only_time = notes.is_empty()
        && !old.is_of_now
        && patch.old_path == patch.new_path
        && old.mode == new.mode
        && old.contents.is_same(&new.contents);
    if is_only_time && old.modified != new.modified {
        let (old, new) = (time::precise(old.modified), time::precise(new.modified));
        notes.push(format!("modified {new} instead of {old}"));
    }
}

fn is_for_git(version: &Version) -> bool {
    matches!(version.kind, Kind::File | Kind::Symlink)
}

/// Whether git itself makes and removes this directory, with the files in it.
fn is_implied(patch: &FilePatch<'_>, version: &Version) -> bool {
    version.kind == Kind::Directory && version.mode == 0o755 && patch.has_below
}

/// Whether git's mode describes the object's mode completely.
fn says_mode(version: &Version) -> bool {
    match version.kind {
        Kind::File => matches!(version.mode, 0o644 | 0o755),
        Kind::Symlink => true,
        _ => false,
    }
}
