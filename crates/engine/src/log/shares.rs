//! Who gives up what when the history gets too long.
//!
//! Invariants
//! 1. What one user's commits take never pushes out what others have, as long as those take less:
//!    the user with the most goes first, with the oldest.
//! 2. Other users cannot push out what the store's owner and root have, up to half of the space.

use std::collections::{BTreeMap, HashSet, VecDeque};

/// The space that a commit takes in the history.
pub(crate) struct Claim {
    pub user: u32,
    pub bytes: u64,
    /// No open transaction needs it.
    pub may_go: bool,
}

#[derive(Default)]
struct Share {
    bytes: u64,
    /// The places of the claims that may go, the oldest first.
    claims: VecDeque<usize>,
}

/// The places of the claims that go, so that those that stay take no more than `bytes_max`, as far
/// as they may go. `claims`: the oldest first.
pub(crate) fn excessive(claims: &[Claim], bytes_max: u64, owner: u32) -> HashSet<usize> {
    let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
    for (place, claim) in claims.iter().enumerate() {
        let share = shares.entry(claim.user).or_default();
        share.bytes += claim.bytes;
        if claim.may_go {
            share.claims.push_back(place);
        }
    }
    let is_safe = |user: u32| user == owner || user == 0;
    let sum = |shares: &BTreeMap<u32, Share>, safe: bool| -> u64 {
        let users = shares.iter().filter(|(user, _)| is_safe(**user) == safe);
        users.map(|(_, share)| share.bytes).sum()
    };
    let (mut of_safe, mut of_others) = (sum(&shares, true), sum(&shares, false));
    let mut gone = HashSet::new();
    while of_safe + of_others > bytes_max {
        // If there is more than half for the safe ones, the others may have the rest.
        let others_max = bytes_max.saturating_sub(of_safe.min(bytes_max / 2));
        let first = of_others <= others_max;
        let most = [first, !first].into_iter().find_map(|safe| {
            let shares = shares.iter();
            let shares =
                shares.filter(|(user, share)| is_safe(**user) == safe && !share.claims.is_empty());
            shares.max_by_key(|(_, share)| share.bytes)
        });
        let Some(user) = most.map(|(user, _)| *user) else {
            break;
        };
        let share = shares.entry(user).or_default();
        let Some(place) = share.claims.pop_front() else {
            break;
        };
        let bytes = claims[place].bytes;
        share.bytes -= bytes;
        match is_safe(user) {
            true => of_safe -= bytes,
            false => of_others -= bytes,
        }
        gone.insert(place);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn gone(claims: &[(u32, u64)], bytes_max: u64) -> Vec<usize> {
        let claims = claims.iter().map(|(user, bytes)| Claim {
            user: *user,
            bytes: *bytes,
            may_go: true,
        });
        let claims: Vec<Claim> = claims.collect();
        let mut gone: Vec<usize> = excessive(&claims, bytes_max, OWNER).into_iter().collect();
        gone.sort();
        gone
    }

    #[test]
    fn the_oldest_of_the_user_with_the_most_goes_first() {
        // Only one user: the oldest.
        assert_eq!(gone(&[(1, 10), (1, 10), (1, 10)], 20), [0]);
        // A user with much gives up everything before another one with little gives up anything.
        assert_eq!(gone(&[(1, 10), (2, 60), (1, 10)], 50), [1]);
        assert_eq!(gone(&[(1, 10), (2, 30), (2, 30), (1, 10)], 50), [1]);
        assert!(gone(&[(1, 10), (2, 10)], 20).is_empty());
        assert_eq!(gone(&[(1, 10), (2, 10)], 0), [0, 1]);
    }

    #[test]
    fn owner_and_root_keep_half_whatever_others_do() {
        for safe in [0, OWNER] {
            let mut claims = vec![(safe, 10); 4];
            claims.extend((1..=20).map(|user| (user, 10)));
            let gone = gone(&claims, 100);
            assert!(gone.iter().all(|place| *place >= 4), "{gone:?}");
            assert_eq!(gone.len(), 14);
            // They have no more than others' shares leave them.
            let claims = [(safe, 80), (safe, 80), (1, 40)];
            assert_eq!(super::tests::gone(&claims, 150), [0]);
        }
    }

    #[test]
    fn what_is_needed_stays() {
        let claim = |may_go| Claim {
            user: 1,
            bytes: 10,
            may_go,
        };
        let gone = excessive(&[claim(false), claim(true)], 0, OWNER);
        assert_eq!(gone, HashSet::from([1]));
    }
}
