use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use atomdir_disk::{Errno, reason};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};

use crate::ring::Inbox;
use crate::transport::{Addressee, Delivered, Next, Transport};
use crate::wire::{REQUEST_LENGTH_MAX, reply_header};

const DEVICE_PATH: &str = "/dev/fuse";

pub fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE_PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Returns another descriptor of the same connection. It has its own queue of requests
/// in progress if the user may open the device.
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
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
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
            // ENOENT: the caller was killed. ENODEV: the mount has ended.
            if errno != Errno::NOENT && errno != Errno::NODEV {
                tracing::warn!(errno = %reason(errno), unique, "the kernel refused a FUSE reply");
            }
            Delivered::No
        }
    }
}

/// Requests that are read from the device.
pub struct Device {
    device: Arc<OwnedFd>,
    buffer: Vec<u8>,
    length: usize,
    /// Set where rings serve the mount. The end of the session is then announced here,
    /// since no request wakes this worker.
    inbox: Option<Arc<Inbox>>,
}

impl Device {
    pub fn new(device: Arc<OwnedFd>) -> Device {
        Device {
            device,
            buffer: vec![0; REQUEST_LENGTH_MAX],
            length: 0,
            inbox: None,
        }
    }

    /// Receives the requests that do not come by the rings.
    pub fn beside_rings(device: Arc<OwnedFd>, inbox: Arc<Inbox>) -> Result<Device, Errno> {
        // A request may be withdrawn between poll and read, so reading must not block.
        let flags = rustix::fs::fcntl_getfl(&device)?;
        rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
        Ok(Device {
            inbox: Some(inbox),
            ..Device::new(device)
        })
    }

    /// Waits for a request; `false` if the session is over first.
    fn wait(&self, inbox: &Inbox) -> Result<bool, Errno> {
        let mut both = [
            PollFd::new(&self.device, PollFlags::IN),
            PollFd::from_borrowed_fd(inbox.bell(), PollFlags::IN),
        ];
        loop {
            match poll(&mut both, None) {
                Ok(_) if both[1].revents().is_empty() => return Ok(true),
                Ok(_) => return Ok(!inbox.take().is_over),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Transport for Device {
    fn receive(&mut self) -> Result<bool, Errno> {
        loop {
            if let Some(inbox) = &self.inbox
                && !self.wait(inbox)?
            {
                return Ok(false);
            }
            match receive(&self.device, &mut self.buffer) {
                // The request was withdrawn after poll.
                Err(Errno::AGAIN) => {}
                received => {
                    let length = received?;
                    self.length = length.unwrap_or(0);
                    return Ok(length.is_some());
                }
            }
        }
    }

    fn message(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) -> Delivered {
        reply(&self.device, unique, answer)
    }

    fn refuse(&mut self, unique: u64, errno: Errno) -> Next {
        let _ = reply(&self.device, unique, Err(errno));
        match self.inbox {
            Some(_) => Next::Continue,
            None => Next::Stop,
        }
    }

    fn put_off(&mut self) -> Addressee {
        Addressee::Device(Arc::clone(&self.device))
    }
}
