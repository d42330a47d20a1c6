//! Other clients in a native view.
//!
//! Only the process that mounted the overlay, the mounter, can give others its mount. So the
//! service makes a pair of sockets, and sends one end to the mounter and the other to the client
//! that attaches. The mounter sends a mount of the view over the pair. The service itself never
//! receives a descriptor, since its close could take as long as its sender likes.
//!
//! Invariants
//! 1. Mounter and attaching client are the same user, who is the service's user: nobody else has
//!    native views ([`Peer::require_native`](crate::rights::permissions::Peer::require_native)) or passes
//!    [`Peer::require_views`](crate::rights::permissions::Peer::require_views) and
//!    [`Transactions::control`](crate::transactions::Transactions::control).
//! 2. A closed view gets no new holders, and is closed only when the mounter alone holds its
//!    transaction, or when the others have been asked to leave.
//! 3. Only the mounter takes a view over, after it was closed and when nobody else holds the
//!    transaction.
//! 4. A native view ends with its mounter's connection: nobody else can find out when no process
//!    writes in it any more. So its transaction is aborted then, even if other clients hold it.

use crate::clients::connection::Connection;
use crate::clients::connections::ConnectionId;
use crate::clients::replies::{Outcome, Unanswered};
use crate::rights::permissions;
use crate::rights::permissions::Reach;
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::refusals;
use crate::views::inner_socket;
use crate::views::native;
use atomdir_disk::reason;
use atomdir_protocol::{Answer, Begun, Failure, FailureKind, Reply, TransactionId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// Lets the client enter, or only look at, a view that another process has mounted. `None`: the
/// view has become exact meanwhile.
pub(crate) fn lend(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    hold: bool,
) -> Result<Option<Outcome>, Unanswered> {
    let id = one.id();
    let transactions = &service.transactions;
    let holder = hold.then_some((connection.id, connection.peer.process));
    let Some(mounter) = transactions.join_native(id, holder)? else {
        return Ok(None);
    };
    let sent = send_end(service, id, mounter);
    let ours = sent.inspect_err(|_| {
        if hold {
            service.abort(transactions.release(id, connection.id));
        }
    })?;
    let path = service.views.path(&one.transaction);
    let reply = Reply::Done(Answer::Begun(Begun {
        transaction: id,
        view_path: path.into_os_string().into_vec(),
        layers: None,
        exact_because: None,
        deviations: Vec::new(),
        lent: true,
        within: inner_socket::way_in(service, id),
    }));
    Ok(Some(Outcome::LastWith(reply, ours)))
}

/// Sends one end of a pair of sockets to the mounter, and returns the other.
fn send_end(
    service: &Service,
    id: TransactionId,
    mounter: ConnectionId,
) -> Result<OwnedFd, Failure> {
    let failed = |errno| {
        let why = reason(errno);
        let message = format!("cannot make a way to the process with the view of {id}: {why}");
        Failure::new(FailureKind::Io, message)
    };
    let ended = |_: Errno| permissions::no_such_transaction(id);
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).map_err(failed)?;
    let stream = service.connections.peer(mounter);
    let (_, stream) = stream.ok_or_else(|| permissions::no_such_transaction(id))?;
    let sent = stream.send_reply_with(&Reply::Lend(id), theirs.as_fd());
    sent.map_err(ended)?;
    Ok(ours)
}

/// The mounter's command has ended, so nobody else may enter.
pub(crate) fn close(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    force: bool,
) -> Result<Answer, Failure> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    if !one.transaction.is_lower() {
        return Ok(Answer::Nothing);
    }
    if one.mounter != Some(connection.id) {
        return Err(native::in_use(id, ""));
    }
    if force {
        service.abort_nested(id, peer.user);
    } else if let Some(nested) = one.transaction.nested_in_it().first() {
        // The end of the view would leave nothing to commit it into.
        return Err(refusals::nested_failure(id, nested));
    }
    let others = transactions.close_native(id, connection.id, force, &service.connections);
    if others.is_empty() {
        return Ok(Answer::Nothing);
    }
    if force {
        dismiss(service, id, others.keys());
    }
    Err(refusals::held_failure(id, others.values()))
}

/// Makes others leave a native view whose own command has ended. Returns false if it has not, or
/// the view is exact.
pub(crate) fn cut_off(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<bool, Failure> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    let Some(mounter) = one.mounter.filter(|_| one.transaction.is_lower()) else {
        return Ok(false);
    };
    // While its command runs, the mounter holds the transaction. A program in the view cannot
    // force its end.
    let is_within = connection.peer.reach != Reach::All;
    if one.holders.contains_key(&mounter) || is_within {
        return Ok(false);
    }
    let others = transactions.close_native(id, mounter, true, &service.connections);
    dismiss(service, id, others.keys());
    Ok(true)
}

/// Called when a transaction has ended: makes everybody but the mounter leave its native view.
pub(crate) fn end(service: &Service, one: &OpenTransaction) {
    if one.transaction.is_lower() {
        let others = one.holders.keys();
        let others = others.filter(|id| one.mounter != Some(**id));
        dismiss(service, one.id(), others);
        // One that no longer holds the transaction waits for the others to leave, and gets no notice
        // of the end: when they leave, the transaction is not open any more.
        let mounter = one.mounter.filter(|id| !one.holders.contains_key(id));
        if let Some(mounter) = mounter {
            left(service, one.id(), mounter);
        }
    }
}

fn dismiss<'a>(
    service: &Service,
    id: TransactionId,
    others: impl Iterator<Item = &'a ConnectionId>,
) {
    for (_, stream) in others.filter_map(|other| service.connections.peer(*other)) {
        if !stream.try_send(&Reply::Leave(id)) {
            // Its peer then takes the service for gone, and ends its command as well.
            stream.close();
        }
    }
}

/// Called when a nested transaction has ended: the mounter of the outer one's native view may wait
/// for that.
pub(crate) fn nested_has_ended(service: &Service, one: &OpenTransaction) {
    let outer = one
        .outer()
        .and_then(|outer| service.transactions.get(outer));
    if let Some(outer) = outer.filter(|outer| outer.transaction.is_lower())
        && let Some(mounter) = outer.mounter
    {
        left(service, outer.id(), mounter);
    }
}

/// Called when a connection has left a transaction that was open with a native view.
pub(crate) fn left(service: &Service, id: TransactionId, mounter: ConnectionId) {
    if let Some((_, stream)) = service.connections.peer(mounter) {
        // If this fails, the mounter has other messages to read, or a request is under way. After
        // either it asks again whether it is alone.
        let _ = stream.try_send(&Reply::Left(id));
    }
}
