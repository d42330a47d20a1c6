//! A network namespace in which a command reaches nobody but itself.

use super::{Errno, checked};
use std::mem::MaybeUninit;

const LOOPBACK: [u8; 3] = *b"lo\0";

/// Programs expect that they can connect to themselves. It makes only system calls.
pub(in crate::enter) fn start_loopback() -> Result<(), Errno> {
    // SAFETY: it takes plain numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    checked(socket.into())?;
    // SAFETY: the structure is plain data, and zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().zip(LOOPBACK) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the structure lives through the call.
    let done = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request) };
    let done = checked(done.into());
    // SAFETY: nobody else has it.
    unsafe { libc::close(socket) };
    done
}
