//! Other clients in a native view, and the mounts that they receive from the process that has
//! mounted it.
//!
//! Both are the same user's, so the one can do no more to the other than any of the user's programs.
//! Only this is checked for safety: a service of another user could bring any mount. Whether the
//! mount is an overlay is checked to catch mistakes.

use crate::connection::Connection;
use crate::error::RequestError;
use crate::transaction::Transaction;
use atomdir_disk::reason;
use atomdir_protocol::{Failure, FailureKind, Request, TransactionId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstatfs, statx};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

const OVERLAY_MAGIC: i64 = 0x794c_7630;
/// The process that mounted the view answers at once, unless it is stopped. A client that only
/// wants to look can do without.
const ANSWER_SECONDS_MAX: i64 = 10;
const LOOK_SECONDS_MAX: i64 = 2;
const REASON_LENGTH_MAX: usize = 256;

/// Sends a descriptor in a message of its own, such as a mount to the client that waits for it.
/// Makes only a system call, so that it may be called after a fork.
pub fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = [IoSlice::new(&[0])];
    sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Tells the client that waits for a mount why it gets none.
pub fn refuse_mount(socket: BorrowedFd<'_>, why: &str) {
    let bytes = &why.as_bytes()[..why.len().min(REASON_LENGTH_MAX)];
    // A client that has gone needs no answer.
    let _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
}

impl Connection {
    /// Keeps others from entering the native view that this connection has mounted, once nobody else
    /// holds its transaction. Until then this fails with
    /// [`FailureKind::InUse`](crate::FailureKind::InUse), and is to be called again after each
    /// [`Notice::Left`](crate::Notice::Left). With `force` nobody else enters from now on, and the
    /// others are asked to leave.
    pub fn close_view(&self, transaction: TransactionId, force: bool) -> Result<(), RequestError> {
        let request = Request::CloseView { transaction, force };
        self.ask_and_listen(&request).map(|_| ())
    }

    /// Turns a native view into an exact one, after all programs in it have ended. If it is not
    /// `opened`, the first use of the transaction's root opens it.
    pub fn take_over(
        &mut self,
        transaction: TransactionId,
        opened: bool,
    ) -> Result<Transaction, RequestError> {
        let request = Request::TakeOver {
            transaction,
            opened,
        };
        self.view(&request, opened, &mut |_| {})
    }
}

/// Receives the mount that the service's answer to the request promises.
pub(crate) fn receive(
    connection: &Connection,
    request: &Request,
    socket: &OwnedFd,
) -> Result<OwnedFd, RequestError> {
    let Request::Attach { transaction, hold } = request else {
        return Err(connection.unexpected());
    };
    // The process that mounted it decides what it shows. So it must be this user's, as the service
    // is.
    if connection.service_user() != rustix::process::geteuid().as_raw() {
        return Err(connection.unexpected());
    }
    let failed = |why: &str| {
        let message = format!("cannot enter the native view of transaction {transaction}: {why}");
        RequestError::Failed(Failure::new(FailureKind::InUse, message))
    };
    let io = |errno| failed(&reason(errno).to_string());
    let time_max = Timespec {
        tv_sec: match hold {
            true => ANSWER_SECONDS_MAX,
            false => LOOK_SECONDS_MAX,
        },
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    if retry_on_intr(|| poll(&mut polled, Some(&time_max))).map_err(io)? == 0 {
        return Err(failed(
            "the process that mounted it does not answer; if it is stopped, let it continue",
        ));
    }
    let mut text = [0; REASON_LENGTH_MAX];
    let (length, mount) = receive_message(socket, &mut text).map_err(io)?;
    match mount {
        Some(mount) if is_overlay(&mount).map_err(io)? => Ok(mount),
        Some(_) => Err(failed("what was sent for it is another mount")),
        None if length == 0 => Err(failed("the process that mounted it has ended")),
        None => Err(failed(&String::from_utf8_lossy(&text[..length]))),
    }
}

/// Receives a message, and the descriptor that came with it.
pub fn receive_message(
    socket: &OwnedFd,
    text: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(text)];
    let message = recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|ancillary| match ancillary {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((message.bytes, received))
}

fn is_overlay(mount: &OwnedFd) -> Result<bool, Errno> {
    let found = fstatfs(mount)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let root = statx(mount, c"", flags, StatxFlags::empty())?;
    #[allow(clippy::unnecessary_cast, reason = "its type differs by architecture")]
    let is_overlay = found.f_type as i64 == OVERLAY_MAGIC;
    Ok(is_overlay && root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
