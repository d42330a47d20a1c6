//! The names used in the control directory: see docs/format.md.

use atomdir_disk::{Identity, Name};

use crate::ids::{Sequence, TransactionId};

pub(crate) const HEADER: &str = "header";
pub(crate) const HEADER_NEW: &str = "header.new";
/// The note of privileges that recovery must restore after it has written files.
pub(crate) const PRIVILEGES: &str = "privileges";
pub(crate) const PRIVILEGES_NEW: &str = "privileges.new";
pub(crate) const LOG: &str = "log";
/// Where the log is, if it is not in the control directory.
pub(crate) const LOG_PLACE: &str = "log.place";
pub(crate) const LOG_PLACE_NEW: &str = "log.place.new";
pub(crate) const HISTORY: &str = "history";
pub(crate) const HISTORY_NEW: &str = "history.new";
/// What commits have replaced, so that they can be undone.
pub(crate) const PAST: &str = "past";
pub(crate) const PAST_NEW: &str = "past.new";
/// What users have said about commits.
pub(crate) const ANNOTATIONS: &str = "annotations";
pub(crate) const ANNOTATIONS_NEW: &str = "annotations.new";
/// Notices of transactions, which the service keeps.
pub(crate) const TRANSACTIONS: &str = "transactions";
pub(crate) const LOCK: &str = "lock";
pub(crate) const CLOCK: &str = "clock";
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const APPLIED: &str = "applied";
/// Where the file system is tried while a store is being made.
pub(crate) const TRIAL: &str = "trial";
pub(crate) const STAGE: &str = "stage";
pub(crate) const LIMBO: &str = "limbo";
/// A directory that is never empty, so that nothing can be renamed onto it:
/// feasibility checks try that.
pub(crate) const OCCUPIED: &str = "occupied";
pub(crate) const OCCUPANT: &str = "occupant";
/// In a transaction's staging directory: the upper layer of its overlay, and
/// overlayfs's work directory.
pub(crate) const UPPER: &str = "upper";
pub(crate) const WORK: &str = "work";
pub(crate) const WORK_INDEX: &str = "index";
/// In a transaction's staging directory: the log of its view.
pub(crate) const VIEW: &str = "view";
pub(crate) const VIEW_NEW: &str = "view.new";
/// A temporary object in `stage`, on which an operation is tried out.
pub(crate) const REHEARSAL: &str = "rehearsal";

/// A name that is known to be valid.
pub(crate) fn fixed(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a constant or a formatted number is a valid name")
}

pub(crate) fn transaction(id: TransactionId) -> Name {
    fixed(&id.to_string())
}

pub(crate) fn slot(slot: u64) -> Name {
    fixed(&slot.to_string())
}

pub(crate) fn slot_number(name: &Name) -> Option<u64> {
    std::str::from_utf8(name.as_bytes()).ok()?.parse().ok()
}

/// The place of an object that has lost its name, or that waits for its next
/// one.
pub(crate) fn limbo(identity: Identity) -> Name {
    fixed(&format!("{:x}-{:x}", identity.inode, identity.birth))
}

const DISPLACED: &str = "displaced-";

/// The place in limbo of an outside writer's object that had to give a name to a commit. The
/// name itself comes last, as far as it fits.
pub(crate) fn displaced(identity: Identity, from: &Name) -> Name {
    let head = format!("{DISPLACED}{:x}-{:x}-", identity.inode, identity.birth);
    let kept = from.as_bytes();
    let kept = &kept[..kept.len().min(Name::LENGTH_MAX - head.len())];
    let name = [head.as_bytes(), kept].concat();
    Name::new(&name).unwrap_or_else(|_| limbo(identity))
}

pub(crate) fn is_displaced(name: &Name) -> bool {
    name.as_bytes().starts_with(DISPLACED.as_bytes())
}

/// The temporary place of another link to an object. An exchange leaves the
/// other object there, until that gets its next name. So this is never the name that the object
/// itself has in limbo: a crash may leave the other one there, and a later commit of the log's tail
/// may have removed the object.
pub(crate) fn second_link(identity: Identity, number: u32) -> Name {
    fixed(&format!(
        "{:x}-{:x}+{number}",
        identity.inode, identity.birth
    ))
}

/// The file for the pages that a commit overwrites in place, for older snapshots and for
/// the history.
pub(crate) fn saved_pages(identity: Identity, sequence: Sequence) -> Name {
    fixed(&format!(
        "{:x}-{:x}.{}",
        identity.inode, identity.birth, sequence
    ))
}

/// An object in limbo, or the pages that a commit has saved there.
pub(crate) type InLimbo = (Identity, Option<Sequence>);

pub(crate) fn in_limbo((object, sequence): InLimbo) -> Name {
    match sequence {
        Some(sequence) => saved_pages(object, sequence),
        None => limbo(object),
    }
}

/// The inverse of [`in_limbo`].
pub(crate) fn parse_limbo(name: &Name) -> Option<InLimbo> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    let (identity, sequence) = match text.split_once('.') {
        Some((identity, sequence)) => (identity, Some(Sequence(sequence.parse().ok()?))),
        None => (text, None),
    };
    let (inode, birth) = identity.split_once('-')?;
    let identity = Identity {
        inode: u64::from_str_radix(inode, 16).ok()?,
        birth: u64::from_str_radix(birth, 16).ok()?,
    };
    Some((identity, sequence))
}
