//! Decides which paths a peer may see, and describes what is wrong with the store as a whole, in full
//! or without paths.
//!
//! A conflict names a path that the peer's own transaction has used, or one that others have: what
//! they have locked, or made in a directory that the peer removes. Of the others' paths a peer sees as
//! much as it could list itself.
//!
//! The error of a commit that cannot be applied names a path, which may be another
//! user's. Users whom the store's settings merely list may lack the right to see that
//! path. So they learn what happened and to which commit; the store's owner and root
//! learn the rest.

use crate::rights::access::{Access, as_peer};
use crate::rights::permissions::Peer;
use atomdir::hosting::with_remedy;
use atomdir_engine::{Poison, Stalled, StoreError};
use atomdir_protocol::{Conflict, ConflictKind};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const ASK: &str = "the store's owner can see the details with `atomdir service status`";

/// A program in a view may see as much as its user.
fn may_see_all(peer: &Peer) -> bool {
    peer.may_use(geteuid().as_raw())
}

/// As much of a path as the peer may see.
pub(crate) struct Seen {
    /// The path itself, or a directory above it.
    pub(crate) path: Vec<u8>,
    pub(crate) is_whole: bool,
}

/// `own`: paths that the peer has named itself.
pub(crate) fn path(access: &Access, peer: &Peer, path: &[u8], own: &[Vec<u8>]) -> Seen {
    let whole = |is_whole| Seen {
        path: path.to_vec(),
        is_whole,
    };
    if may_see_all(peer) || own.iter().any(|one| one == path) {
        return whole(true);
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let seen = as_peer(peer, || Ok(count_listed(access, &names))).unwrap_or(0);
    match seen == names.len() {
        true => whole(true),
        false => Seen {
            path: names[..seen].join(&b'/'),
            is_whole: false,
        },
    }
}

/// How many names the calling thread could learn by listing directories, one below the other.
fn count_listed(access: &Access, names: &[&[u8]]) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(CWD, &access.root, flags, Mode::empty());
    for (count, name) in names.iter().enumerate() {
        let name = OsStr::from_bytes(name);
        let found = directory.and_then(|directory| {
            statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(openat(&directory, name, flags, Mode::empty()))
        });
        directory = match found {
            Ok(below) => below,
            Err(_) => return count,
        };
    }
    names.len()
}

/// A conflict as the peer may see it. `own`: paths that the peer has named itself.
pub(crate) fn conflict(
    access: &Access,
    peer: &Peer,
    mut conflict: Conflict,
    own: &[Vec<u8>],
) -> Conflict {
    // Labels hold command lines, so only their owner and root may see them.
    if !peer.may_administer() {
        conflict.by.hide_label();
    }
    let is_others = matches!(
        conflict.what,
        ConflictKind::Locked
            | ConflictKind::LockedInDeadlock { .. }
            | ConflictKind::EntryInRemovedDirectory
    );
    if is_others {
        conflict.path = path(access, peer, &conflict.path, own).path;
    }
    conflict
}

pub(crate) fn stalled(stalled: &Stalled, peer: &Peer) -> String {
    if may_see_all(peer) {
        return stalled.to_string();
    }
    let sequence = stalled.sequence;
    format!(
        "commit {sequence} is durable but cannot be applied yet: something is in its way; {ASK}"
    )
}

pub(crate) fn poison(poison: &Poison, peer: &Peer) -> String {
    for_peer(poison, peer).to_string()
}

fn for_peer(poison: &Poison, peer: &Peer) -> Poison {
    match poison {
        Poison::NotApplied { sequence, .. } if !may_see_all(peer) => Poison::NotApplied {
            sequence: *sequence,
            obstacle: None,
        },
        poison => poison.clone(),
    }
}

pub(crate) fn store_error(error: &StoreError, peer: &Peer) -> String {
    if may_see_all(peer) {
        return with_remedy(error);
    }
    match error {
        StoreError::Stalled(cause) => {
            let cause = stalled(cause, peer);
            format!("no transaction can begin or commit now: {cause}")
        }
        StoreError::Apply { sequence, .. } => {
            format!(
                "commit {sequence} cannot be applied to the base; it stays in the log: something \
                 is in its way, and {ASK}"
            )
        }
        StoreError::Poisoned { reason } => {
            let reason = for_peer(reason, peer);
            with_remedy(&StoreError::Poisoned { reason })
        }
        error => with_remedy(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::permissions::Reach;
    use atomdir_engine::{Obstacle, Sequence};

    fn peer(user: u32) -> Peer {
        Peer {
            user,
            process: 1,
            groups: Vec::new(),
            reach: Reach::All,
        }
    }

    #[test]
    fn only_the_owner_and_root_see_paths() {
        let sequence = Sequence(7);
        let obstacle = || Obstacle {
            path: "secret/plan".to_owned(),
            reason: "a mount".to_owned(),
        };
        let reason = Poison::NotApplied {
            sequence,
            obstacle: Some(obstacle()),
        };
        let Obstacle { path, reason: why } = obstacle();
        let in_the_way = Stalled {
            sequence,
            path: path.clone(),
            reason: why.clone(),
        };
        let errors = [
            StoreError::Stalled(in_the_way.clone()),
            StoreError::Apply {
                sequence,
                path,
                reason: why,
            },
            StoreError::Poisoned {
                reason: reason.clone(),
            },
        ];
        let texts = |peer: &Peer| {
            let mut texts = vec![stalled(&in_the_way, peer), poison(&reason, peer)];
            texts.extend(errors.iter().map(|error| store_error(error, peer)));
            texts
        };
        let service = geteuid().as_raw();
        for text in [texts(&peer(0)), texts(&peer(service))].concat() {
            assert!(text.contains("secret/plan"), "{text}");
        }
        for text in texts(&peer(service + 1000)) {
            let tells = text.contains("secret") || text.contains("mount");
            assert!(!tells && text.contains("commit 7"), "{text}");
        }
    }
}
