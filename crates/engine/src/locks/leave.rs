//! Who may lock a file or directory without the right to read or write it.
//!
//! An extended attribute says it ([`LOCK_ALLOW`]). Whoever may write the file can set it. So they let
//! others do what they could do for them: lock the file. It takes no right from anybody.
//!
//! A lock that was granted by leave is in force as long as the attribute of the base says so, or its
//! holder has the right by then. Once somebody has met it after that, it is over for good, since others
//! may have locked the same.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Result};
use atomdir_types::LOCK_ALLOW;

use crate::base::Base;
use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::ids::NodeId;
use crate::view::View;

/// Checks that the user has the permission, or may lock the object by leave. Returns whether it is by
/// leave.
pub(super) fn require<D: Disk>(
    view: &mut View<D>,
    node: NodeId,
    user: &Credentials,
    permission: Permission,
) -> Result<bool> {
    match view.require(node, user, permission) {
        Err(Errno::ACCESS) => {
            let list = view.xattr(node, LOCK_ALLOW.as_bytes());
            match list.is_ok_and(|list| names(&list, user)) {
                true => Ok(true),
                false => Err(Errno::ACCESS),
            }
        }
        other => other.map(|()| false),
    }
}

/// Whether the user may lock an object of the base by leave now.
pub(super) fn has<D: Disk>(core: &Core<D>, base: &Arc<Base>, user: &Credentials) -> bool {
    let (identity, place) = base.identity_and_place();
    let list = core.with_object(&place, identity, |handle| {
        core.disk.xattr(handle, LOCK_ALLOW.as_bytes())
    });
    list.is_ok_and(|list| names(&list, user))
}

/// Whether a list names the user or one of the groups. What is no number names nobody.
fn names(list: &[u8], user: &Credentials) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    list.split(|byte| *byte == b',').any(|one| match one {
        [b'@', group @ ..] => number(group).is_some_and(|group| user.groups.contains(&group)),
        one => number(one) == Some(user.user),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_users_and_groups_by_number() {
        let user = Credentials {
            user: 5,
            groups: vec![7, 8],
        };
        for list in ["5", "1,5", "@8", "x,,@7", "-1,5,"] {
            assert!(names(list.as_bytes(), &user), "{list}");
        }
        for list in ["", "7", "@5", "55", "alice", "5 ", "@", "-5", "\u{e9}5"] {
            assert!(!names(list.as_bytes(), &user), "{list}");
        }
        assert!(!names(b"\xff5", &user));
    }
}
