//! Holds the kernel's locks of directories, and its lock for renames, for as long as a test needs it.

use atomdir_testing::{as_user, wait_until};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::Scope;
use std::time::Duration;

/// A page of memory. A kernel write to it waits until the page is released.
pub struct StuckPage {
    start: *mut libc::c_void,
    faults: OwnedFd,
}

// SAFETY: the page is memory of the process, whose address any thread may use.
unsafe impl Sync for StuckPage {}

impl StuckPage {
    const LENGTH: usize = 4096;

    pub fn new() -> StuckPage {
        // SAFETY: a new mapping, and a descriptor that is registered for it.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), Self::LENGTH, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
            let faults = OwnedFd::from_raw_fd(descriptor as i32);
            let mut handshake = [0xaa_u64, 0, 0];
            control(&faults, UFFDIO_API, &mut handshake);
            let mut range = [start as u64, Self::LENGTH as u64, 1, 0];
            control(&faults, UFFDIO_REGISTER, &mut range);
            StuckPage { start, faults }
        }
    }

    /// Returns when something waits for the page.
    pub fn wait_for_fault(&self) {
        let mut message = [0; 32];
        let length = rustix::io::read(&self.faults, &mut message).unwrap();
        assert_eq!(length, message.len());
    }

    pub fn release(&self) {
        let mut page = [self.start as u64, Self::LENGTH as u64, 0, 0];
        control(&self.faults, UFFDIO_ZEROPAGE, &mut page);
    }

    /// Lists a directory into the page. The directory stays locked until the page is released.
    pub fn list(&self, directory: &File) {
        // SAFETY: the page has the length that is passed.
        let listed = unsafe {
            let descriptor = directory.as_raw_fd();
            libc::syscall(libc::SYS_getdents64, descriptor, self.start, Self::LENGTH)
        };
        assert!(listed > 0, "{}", std::io::Error::last_os_error());
    }
}

/// From `linux/userfaultfd.h`.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;

fn control<const N: usize>(faults: &OwnedFd, command: libc::Ioctl, argument: &mut [u64; N]) {
    // SAFETY: each command reads and writes as many numbers as the argument has.
    let result = unsafe { libc::ioctl(faults.as_raw_fd(), command, argument.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Starts a rename that waits in the kernel while it holds the locks of the two directories
/// and the lock for renames. Returns when it has them.
pub fn start_rename<'scope>(
    scope: &'scope Scope<'scope, '_>,
    user: u32,
    from: PathBuf,
    to: PathBuf,
) {
    let (started, thread) = mpsc::channel();
    scope.spawn(move || {
        as_user(user, || {
            // SAFETY: the call has no arguments.
            started.send(unsafe { libc::gettid() }).unwrap();
            let renamed = std::fs::rename(from, to);
            assert!(renamed.is_err());
        })
    });
    let thread = thread.recv().unwrap();
    wait_until("a rename that waits", || {
        is_stuck(&format!("/proc/self/task/{thread}"))
    });
}

/// Whether a thread, by its directory in /proc, waits uninterruptibly, and goes on doing so without having run in
/// between, for longer than it takes others to rename or to write something.
pub fn is_stuck(directory: &str) -> bool {
    let waiting = || {
        let status = std::fs::read_to_string(format!("{directory}/status")).ok()?;
        let is_switches = |line: &&str| line.starts_with("voluntary_ctxt_switches");
        let switches = status.lines().find(is_switches)?.to_owned();
        (state_of(directory) == Some('D')).then_some(switches)
    };
    let Some(first) = waiting() else {
        return false;
    };
    (0..200).all(|_| {
        std::thread::sleep(Duration::from_millis(1));
        waiting().as_ref() == Some(&first)
    })
}

/// The state of a process or thread, by its directory in /proc.
fn state_of(directory: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("{directory}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}
