//! Reads a path as it was in a transaction's snapshot, or as it is now. The engine reads it with
//! the service's rights, so a service that runs as root must check here that the peer itself
//! could read it: there is no later check.

use crate::clients::connection::Connection;
use crate::clients::replies::{Unanswered, send_one};
use crate::requests::transaction_failure;
use crate::rights::permissions::Peer;
use crate::transactions::OpenTransaction;
use atomdir_disk::{Kind, Owner};
use atomdir_engine::{Side, SnapshotObject};
use atomdir_protocol::{Answer, Failure, FailureKind, Reply};
use rustix::io::Errno;
use rustix::process::geteuid;

const READ: u32 = 4;
const SEARCH: u32 = 1;
/// At most this much of a file is in memory at a time, since the peer may never read
/// it.
const CONTENTS_PART: u64 = 256 << 10;

/// Reads one side of a transaction for a peer.
pub(crate) struct SideReader<'a> {
    connection: &'a Connection,
    one: &'a OpenTransaction,
    side: Side,
}

impl<'a> SideReader<'a> {
    pub fn new(connection: &'a Connection, one: &'a OpenTransaction, side: Side) -> Self {
        SideReader {
            connection,
            one,
            side,
        }
    }

    pub fn send(&self, path: &[u8], contents_length_max: u64) -> Result<Answer, Unanswered> {
        let object = match self.find(path) {
            Ok(Some(object)) => object,
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR) => {
                return Ok(Answer::SnapshotObject(None));
            }
            Err(Errno::ACCESS) => return Err(self.not_readable(path).into()),
            Err(errno) => return Err(transaction_failure(self.one.id(), errno).into()),
        };
        let object = object.for_client(contents_length_max);
        if object.kind == Kind::File && !object.too_long {
            self.send_contents(path, object.length)?;
        }
        Ok(Answer::SnapshotObject(Some(object)))
    }

    fn send_contents(&self, path: &[u8], length: u64) -> Result<(), Unanswered> {
        let transaction = &self.one.transaction;
        let mut offset = 0;
        while offset < length {
            let mut part = vec![0; (length - offset).min(CONTENTS_PART) as usize];
            transaction
                .read_of(self.side, path, offset, &mut part)
                .map_err(|errno| transaction_failure(self.one.id(), errno))?;
            offset += part.len() as u64;
            send_one(&self.connection.stream, &Reply::Contents(part))?;
        }
        Ok(())
    }

    /// Finds the object, if the peer may read it.
    fn find(&self, path: &[u8]) -> Result<Option<SnapshotObject>, Errno> {
        let look = |path| self.one.transaction.object_of(self.side, path);
        let peer = &self.connection.peer;
        if peer.is_root() || !geteuid().is_root() {
            return look(path);
        }
        for above in prefixes(path) {
            match look(above)? {
                Some(directory) if !may(peer, &directory, SEARCH) => return Err(Errno::ACCESS),
                Some(_) => {}
                None => return Ok(None),
            }
        }
        let Some(mut found) = look(path)? else {
            return Ok(None);
        };
        let readable = may(peer, &found, READ);
        if found.kind == Kind::File && !readable {
            return Err(Errno::ACCESS);
        }
        // The kernel hides the same attributes, see xattr(7).
        found.xattrs.retain(|(name, _)| {
            !name.starts_with(b"trusted.") && (readable || !name.starts_with(b"user."))
        });
        Ok(Some(found))
    }

    fn not_readable(&self, path: &[u8]) -> Failure {
        let path = String::from_utf8_lossy(path);
        let side = match self.side {
            Side::Snapshot => "of the snapshot",
            Side::Newest => "as others have changed it",
        };
        let message = format!("not permitted to read '{path}' {side}");
        Failure::new(FailureKind::NotPermitted, message)
    }
}

/// The directories that a path leads through, starting with the root.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    [&path[..0]]
        .into_iter()
        .chain(slashes.map(|(at, _)| &path[..at]))
}

fn may(peer: &Peer, object: &SnapshotObject, bit: u32) -> bool {
    let Owner { user, group } = object.attributes.owner;
    let class = if peer.user == user {
        6
    } else if peer.groups.contains(&group) {
        3
    } else {
        0
    };
    // An access list may deny what the mode seems to allow to anyone but the owner.
    if object.has_access_list() && class != 6 {
        return false;
    }
    object.attributes.mode >> class & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_requires_search_permission_on_every_parent() {
        let asked = |path| prefixes(path).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(asked(b"a"), [b"".to_vec()]);
        assert_eq!(
            asked(b"a/b/c"),
            [b"".to_vec(), b"a".to_vec(), b"a/b".to_vec()]
        );
    }
}
