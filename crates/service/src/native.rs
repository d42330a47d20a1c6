//! Native views: who can have one, and what it is mounted with.

use crate::permissions::Peer;
use crate::transactions::Transaction;
use atomdir_disk::reason;
use atomdir_engine::Marking;
use atomdir_protocol::{BeginRequest, Conflicts, Failure, FailureKind, Layers, TransactionId};
use rustix::io::Errno;
use std::os::unix::ffi::OsStringExt;

pub(crate) fn check(begin: &BeginRequest, peer: &Peer) -> Result<(), Failure> {
    peer.require_native()?;
    if begin.outer.is_some() {
        let message = "there are no native views inside a transaction: what the outer one has changed is in no snapshot";
        return Err(Failure::new(FailureKind::NoViews, message).with_hint("use `--view exact`"));
    }
    if begin.conflicts == Conflicts::Early {
        let message = "early conflicts are found in exact views only: a native view's writes are looked at when its command has ended";
        return Err(Failure::new(FailureKind::Unsupported, message));
    }
    Ok(())
}

pub(crate) fn layers(transaction: &Transaction) -> Option<Layers> {
    Some(Layers {
        path: transaction.layers()?.into_os_string().into_vec(),
        user_marks: transaction.marking() == Marking::User,
    })
}

/// The upper layer could not be read.
pub(crate) fn unreadable(id: TransactionId, errno: Errno) -> Failure {
    let message = format!(
        "cannot read what was changed in transaction {id}: {errno}",
        errno = reason(errno)
    );
    let failure = Failure::new(FailureKind::Io, message);
    match errno {
        Errno::ACCESS => failure.with_hint(
            "a file or directory was left unreadable for its owner, which needs `--view exact`",
        ),
        _ => failure,
    }
}
