//! Describes what is wrong with the store as a whole, in full or without paths.
//!
//! The error of a commit that cannot be applied names a path, which may be another
//! user's. Users whom the store's settings merely list may lack the right to see that
//! path. So they learn what happened and to which commit; the store's owner and root
//! learn the rest.

use crate::rights::permissions::Peer;
use atomdir::hosting::with_remedy;
use atomdir_engine::{Poison, Stalled, StoreError};
use rustix::process::geteuid;

const ASK: &str = "the store's owner can see the details with `atomdir service status`";

/// A program in a view may see as much as its user.
fn may_see_all(peer: &Peer) -> bool {
    peer.may_use(geteuid().as_raw())
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
            group: user,
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
