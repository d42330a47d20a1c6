//! Who is at the other end of a socket.

use rustix::io::Errno;
use rustix::process::Pid;
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end, as it was when it connected or began to listen.
#[derive(Debug, Clone, Copy)]
pub struct PeerCredentials {
    /// `None` if it is not in this process's process namespace or one below, as between containers.
    pub process: Option<Pid>,
    /// Its effective user id.
    pub user: u32,
    /// Its effective group id.
    pub group: u32,
}

/// Asks the kernel. `rustix` cannot: it takes a process id of 0 for an error.
pub fn peer_credentials(socket: impl AsFd) -> Result<PeerCredentials, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` has `length` bytes, and any bytes are valid numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &mut length,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(PeerCredentials {
        process: Pid::from_raw(found.pid),
        user: found.uid,
        group: found.gid,
    })
}
