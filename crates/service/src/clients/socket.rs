//! The service's socket, and the frames sent over one of its connections. Whether a
//! peer sends garbage, sends nothing or never reads, it holds up only its own thread.

use crate::clients::latch::Latch;
use crate::clients::turn::Turn;
use atomdir_protocol::frame::{self, FrameError, HEADER_LENGTH, REQUEST_LENGTH_MAX};
use atomdir_protocol::{Reply, Request, handshake};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, chmodat, unlinkat};
use rustix::io::{Errno, IoSlice};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, shutdown,
    socket_with,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The socket's name in the control directory.
pub(crate) const NAME: &str = "socket";
const BACKLOG: i32 = 1024;
/// The limit for a peer to send its greeting, and the rest of a request it has begun.
const RECEIVE_TIME_MAX: Duration = Duration::from_secs(10);
/// The limit for a peer to make room for part of a reply.
const SEND_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a reply to the same peer may delay a short one that the peer has not asked for.
const NOTICE_TIME_MAX: Duration = Duration::from_millis(100);

pub(crate) struct Listener(OwnedFd);

impl Listener {
    /// The caller must hold the store's lock, so a socket that already exists is dead.
    pub(crate) fn bind(
        directory: &OwnedFd,
        name: &str,
        open_to_all: bool,
    ) -> Result<Listener, Errno> {
        remove(directory, name);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Use the descriptor, since a socket address has room for only 107 bytes.
        let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
        refuse_descriptors(&socket);
        bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
        let mode = if open_to_all { 0o666 } else { 0o600 };
        chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        // No client can connect before this call.
        listen(&socket, BACKLOG)?;
        Ok(Listener(socket))
    }

    /// Returns `None` if no client is waiting.
    pub(crate) fn accept(&self) -> Result<Option<Stream>, Errno> {
        match accept_with(&self.0, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(Stream::new(socket)?)),
            Err(Errno::WOULDBLOCK | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes this listener's connections refuse descriptors from their peers. A descriptor
/// that is never received is closed with its connection, and the peer decides how long
/// that close takes: see [`crate::clients::closing`], which handles this on kernels before Linux
/// 6.16.
fn refuse_descriptors(listener: &OwnedFd) {
    /// The value in `asm-generic/socket.h`.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the option's value is a number. Older kernels reject the option.
    let _ = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

pub(crate) fn remove(directory: &OwnedFd, name: &str) {
    // If this fails because the socket still exists, binding reports it.
    let _ = unlinkat(directory, name, AtFlags::empty());
}

#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The peer closed the connection between two requests.
    Closed,
    Io(Errno),
    Frame(FrameError),
}

impl From<Errno> for ReceiveError {
    fn from(errno: Errno) -> Self {
        ReceiveError::Io(errno)
    }
}

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    socket: Arc<OwnedFd>,
    sending: Arc<AtomicBool>,
    /// Taken while a frame is sent, so that no other is sent in its middle.
    turn: Arc<Turn>,
    takes_notices: Arc<AtomicBool>,
}

impl Stream {
    fn new(socket: OwnedFd) -> Result<Stream, Errno> {
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIME_MAX))?;
        Ok(Stream {
            socket: Arc::new(socket),
            sending: Arc::default(),
            turn: Arc::default(),
            takes_notices: Arc::default(),
        })
    }

    pub(crate) fn receive_hello(&self) -> Result<[u8; handshake::LENGTH], ReceiveError> {
        let mut hello = [0; handshake::LENGTH];
        let deadline = Instant::now() + RECEIVE_TIME_MAX;
        self.receive_by(&mut hello, deadline)?;
        Ok(hello)
    }

    /// Whether the peer sends something or closes the connection within `time`.
    pub(crate) fn is_ready_within(&self, time: Duration) -> bool {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        // Receiving reports any failure.
        poll(&mut polled, time.as_ref()) != Ok(0)
    }

    /// Waits for the next request without a limit; once a request has begun, the limit
    /// applies.
    pub(crate) fn receive_request(&self) -> Result<Request, ReceiveError> {
        let mut header = [0; HEADER_LENGTH];
        let first = loop {
            match recv(&*self.socket, &mut header[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(ReceiveError::Closed),
                Ok((count, _)) => break count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        let deadline = Instant::now() + RECEIVE_TIME_MAX;
        self.receive_by(&mut header[first..], deadline)?;
        let length =
            frame::decode_header(header, REQUEST_LENGTH_MAX).map_err(ReceiveError::Frame)?;
        let mut payload = vec![0; length];
        self.receive_by(&mut payload, deadline)?;
        frame::decode(&payload).map_err(ReceiveError::Frame)
    }

    fn receive_by(&self, mut buffer: &mut [u8], deadline: Instant) -> Result<(), Errno> {
        // The whole message has nearly always arrived already.
        let mut flags = RecvFlags::DONTWAIT;
        while !buffer.is_empty() {
            match recv(&*self.socket, &mut *buffer, flags) {
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((count, _)) => buffer = &mut buffer[count..],
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Errno::TIMEDOUT);
                    }
                    set_socket_timeout(&*self.socket, Timeout::Recv, Some(left))?;
                    flags = RecvFlags::empty();
                }
                Err(errno) => return Err(errno),
            }
        }
        if flags.is_empty() {
            set_socket_timeout(&*self.socket, Timeout::Recv, None)?;
        }
        Ok(())
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send(bytes, None)
    }

    pub(crate) fn send_reply(&self, reply: &Reply) -> Result<(), Errno> {
        self.send(&encode_reply(reply)?, None)
    }

    pub(crate) fn send_reply_with(
        &self,
        reply: &Reply,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        self.send(&encode_reply(reply)?, Some(descriptor))
    }

    fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let _turn = self.turn.take();
        self.sending.store(true, Ordering::Relaxed);
        let sent = self.send_all(bytes, descriptor, SendFlags::empty());
        self.sending.store(false, Ordering::Relaxed);
        sent
    }

    fn send_all(
        &self,
        mut bytes: &[u8],
        mut descriptor: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = descriptor.as_slice();
            if !descriptors.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            match sendmsg(
                &*self.socket,
                &[IoSlice::new(bytes)],
                &mut control,
                flags | SendFlags::NOSIGNAL,
            ) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    descriptor = None;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// From now on the peer expects notices.
    pub(crate) fn take_notices(&self) {
        self.takes_notices.store(true, Ordering::Relaxed);
    }

    /// Sends a short reply that the peer has not asked for, if the peer expects such replies and
    /// this needs no wait. Returns whether it was sent.
    pub(crate) fn try_notify(&self, reply: &Reply) -> bool {
        if !self.takes_notices.load(Ordering::Relaxed) {
            return false;
        }
        let turn = self.turn.take_within(Duration::ZERO);
        let (Some(_turn), Ok(bytes)) = (turn, encode_reply(reply)) else {
            return false;
        };
        // The kernel takes so few bytes as a whole or not at all.
        self.send_all(&bytes, None, SendFlags::DONTWAIT).is_ok()
    }

    /// Sends a short reply that the peer has not asked for, but must expect. Returns false if this
    /// would have to wait for the peer.
    pub(crate) fn try_send(&self, reply: &Reply) -> bool {
        let Ok(bytes) = encode_reply(reply) else {
            return false;
        };
        // The kernel takes so few bytes as a whole or not at all.
        let send = |_turn| self.send_all(&bytes, None, SendFlags::DONTWAIT).is_ok();
        self.turn.take_within(NOTICE_TIME_MAX).is_some_and(send)
    }

    /// Ends the connection for both sides.
    pub(crate) fn close(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }

    /// Whether a short message can be sent without waiting for the peer.
    pub(crate) fn has_room(&self) -> bool {
        self.is_within(PollFlags::OUT, Duration::ZERO)
    }

    /// Whether the peer or this side closes within `time`, even if data is still
    /// unread.
    pub(crate) fn is_hung_up_within(&self, time: Duration) -> bool {
        self.is_within(PollFlags::RDHUP | PollFlags::HUP, time)
    }

    /// Waits until the latch is set. Returns `false` if the peer or this side closes
    /// first, or the deadline passes.
    pub(crate) fn wait_beside(&self, latch: &Latch, deadline: Option<Instant>) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP;
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            // A time too long for the kernel counts as no limit.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = [
                PollFd::new(&*self.socket, gone),
                PollFd::new(latch, PollFlags::IN),
            ];
            match poll(&mut polled, left.as_ref()) {
                Err(Errno::INTR) => {}
                Err(_) | Ok(0) => return false,
                // We do not poll for input, so any event on the socket means that it
                // was closed.
                Ok(_) => return polled[0].revents().is_empty(),
            }
        }
    }

    fn is_within(&self, what: PollFlags, time: Duration) -> bool {
        let mut polled = [PollFd::new(&*self.socket, what)];
        let time = Timespec::try_from(time).ok();
        poll(&mut polled, time.as_ref()).is_ok() && polled[0].revents().intersects(what)
    }

    /// A thread that waits for the peer's next request then finds the connection
    /// closed.
    pub(crate) fn close_for_reading(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Read);
    }

    /// A thread that waits for the peer to read an answer then fails.
    pub(crate) fn close_if_sending(&self) {
        if self.sending.load(Ordering::Relaxed) {
            let _ = shutdown(&*self.socket, Shutdown::Both);
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode_reply(reply: &Reply) -> Result<Vec<u8>, Errno> {
    frame::encode(reply, frame::REPLY_LENGTH_MAX).map_err(|_| Errno::MSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_protocol::TransactionId;
    use rustix::net::socketpair;

    const ID: TransactionId = TransactionId(7);

    impl Stream {
        /// A connection, and its peer's end.
        pub(crate) fn pair() -> (Stream, OwnedFd) {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
            let (ours, peer) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
            (Stream::new(ours).unwrap(), peer)
        }
    }

    #[test]
    fn disconnect_is_noticed_behind_unread_requests() {
        let (stream, peer) = Stream::pair();
        rustix::io::write(&peer, b"more").unwrap();
        assert!(!stream.is_hung_up_within(Duration::ZERO));
        drop(peer);
        assert!(stream.is_hung_up_within(Duration::ZERO));
        let (stream, peer) = Stream::pair();
        rustix::io::write(&peer, b"more").unwrap();
        stream.close_for_reading();
        assert!(stream.is_hung_up_within(Duration::ZERO));
    }

    #[test]
    fn peer_is_ready_after_a_request_or_a_disconnect() {
        let (stream, peer) = Stream::pair();
        assert!(!stream.is_ready_within(Duration::ZERO));
        rustix::io::write(&peer, b"more").unwrap();
        assert!(stream.is_ready_within(Duration::MAX));
        let (stream, peer) = Stream::pair();
        drop(peer);
        assert!(stream.is_ready_within(Duration::MAX));
    }

    #[test]
    fn a_wait_ends_with_the_latch_the_peer_the_connection_or_the_time() {
        let (stream, peer) = Stream::pair();
        let latch = Latch::new().unwrap();
        // The deadline has already passed.
        assert!(!stream.wait_beside(&latch, Some(Instant::now())));
        let set_meanwhile = || {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| stream.wait_beside(&latch, None));
                latch.set();
                waiting.join().unwrap()
            })
        };
        assert!(set_meanwhile());
        // A latch set earlier counts as well; further input from the peer does not.
        rustix::io::write(&peer, b"more").unwrap();
        assert!(stream.wait_beside(&latch, None));
        latch.clear();
        assert!(!stream.wait_beside(&latch, Some(Instant::now())));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stream.wait_beside(&latch, None));
            drop(peer);
            assert!(!waiting.join().unwrap());
        });
        let (stream, _peer) = Stream::pair();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| stream.wait_beside(&latch, None));
            stream.close_for_reading();
            assert!(!waiting.join().unwrap());
        });
    }

    #[test]
    fn a_notice_waits_a_moment_for_a_reply_that_is_being_sent() {
        let (stream, peer) = Stream::pair();
        let turn = stream.turn.take();
        assert!(!stream.try_send(&Reply::Left(ID)));
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let _turn = stream.turn.take_within(Duration::MAX).unwrap();
                stream.sending.store(true, Ordering::Relaxed);
            });
            drop(turn);
            sending.join().unwrap();
        });
        assert!(stream.sending.load(Ordering::Relaxed));
        assert!(stream.try_send(&Reply::Left(ID)));
        assert!(rustix::io::read(&peer, &mut [0; 64]).unwrap() > 0);
    }

    #[test]
    fn full_socket_has_no_room() {
        let (stream, _peer) = Stream::pair();
        let mut sent = 0;
        while stream.has_room() {
            stream.send_bytes(&[0; 64]).unwrap();
            sent += 64;
        }
        assert!(sent > 4096);
    }
}
