//! Bytes and descriptors over the socket.

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Returns `Ok(false)` if the other end closed before the first byte.
pub(crate) fn receive_exact(
    socket: &OwnedFd,
    mut buffer: &mut [u8],
    descriptor: &mut Option<OwnedFd>,
) -> Result<bool, Errno> {
    let mut begun = false;
    while !buffer.is_empty() {
        match receive(socket, buffer, descriptor) {
            Ok(0) if begun => return Err(Errno::CONNRESET),
            Ok(0) => return Ok(false),
            Ok(count) => {
                begun = true;
                buffer = &mut buffer[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
    descriptor: &mut Option<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = ancillary {
            for received in descriptors {
                *descriptor = Some(received);
            }
        }
    }
    Ok(message.bytes)
}

pub(crate) fn send_all(socket: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
