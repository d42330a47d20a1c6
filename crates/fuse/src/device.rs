use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};

use atomdir_disk::Errno;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};

use crate::wire::reply_header;

const DEVICE_PATH: &str = "/dev/fuse";

pub fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE_PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Another descriptor of the same connection, with a queue of requests in
/// progress of its own where the user may open the device.
pub fn duplicate(device: &OwnedFd) -> Result<OwnedFd, Errno> {
    // FUSE_DEV_IOC_CLONE
    const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);
    if let Ok(clone) = open() {
        // SAFETY: the operation reads one u32, a file descriptor, from its argument.
        let attached =
            unsafe { ioctl(&clone, Setter::<CLONE, u32>::new(device.as_raw_fd() as u32)) };
        if attached.is_ok() {
            return Ok(clone);
        }
    }
    rustix::io::fcntl_dupfd_cloexec(device, 3)
}

/// Waits for a request; `None` once the connection is over.
pub fn receive(device: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            Ok(length) => return Ok(Some(length)),
            // ENOENT: the request was withdrawn while it was being read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether anyone was still waiting for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Delivered {
    Yes,
    No,
}

pub fn reply(device: &OwnedFd, unique: u64, answer: Result<&[u8], Errno>) -> Delivered {
    let (error, body) = match answer {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw_os_error(), &[][..]),
    };
    let header = reply_header(unique, error, body.len());
    match rustix::io::writev(device, &[IoSlice::new(&header), IoSlice::new(body)]) {
        Ok(_) => Delivered::Yes,
        Err(errno) => {
            // ENOENT: the caller was killed; ENODEV: unmounted meanwhile.
            if errno != Errno::NOENT && errno != Errno::NODEV {
                tracing::warn!(%errno, unique, "the kernel refused a FUSE reply");
            }
            Delivered::No
        }
    }
}
