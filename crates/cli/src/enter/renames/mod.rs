//! Performs renames that overlayfs refuses in a native view.
//!
//! Overlayfs refuses to rename old directories with `EXDEV`: all in an ordinary user's overlay, and
//! those whose path is long in root's. Of long paths it refuses old files, too. Few programs expect
//! that within one directory tree. So a filter (`filter`) in the command and all its descendants makes
//! the kernel ask a helper process before each rename. The helper looks at what is renamed
//! (`caller`). Mostly it lets the kernel go on. If overlayfs would refuse, the helper moves the
//! directory itself: it makes a new one and moves the entries one by one (`directory`).
//!
//! Invariants
//! 1. The helper does only what the caller may do. It acts in the caller's mount namespace and root
//!    directory, and as the caller's user, without capabilities that the caller lacks. For
//!    every other caller the kernel goes on as without a helper.
//! 2. A rename happens as a whole, or the directory is as before and the caller gets an error.
//! 3. A rename that overlayfs has refused, and the helper could not perform either, is reported
//!    ([`Refused`]), since the program may go on all the same.
//! 4. The helper lives as long as any process has the filter, since without it their renames would fail with
//!    `ENOSYS`. It keeps no file of the caller's open.
//!
//! A process whose current directory is in a directory that the helper moves is left in the removed
//! original. The new directory has another inode number.

mod caller;
mod directory;
mod filter;
mod requests;

use super::stand_apart;
use atomdir::client::receive_message;
use requests::{Listener, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat, stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, WaitOptions, getrlimit, setrlimit, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use filter::check;
pub(super) use filter::install;

/// The helper's end of what a command in a native view needs.
pub(super) struct Helper {
    /// The command sends its mount namespace and then its listener here before it starts.
    pub(super) sender: OwnedFd,
    pub(super) refused: Refused,
}

/// Reports of the helper.
pub struct Refused {
    reports: OwnedFd,
    helper: Pid,
}

impl Drop for Refused {
    /// Leaves no zombie, if the helper has ended. Mostly it has, with the command.
    fn drop(&mut self) {
        let _ = waitpid(Some(self.helper), WaitOptions::NOHANG);
    }
}

impl Refused {
    /// The whole paths of what could not be renamed since the last call.
    pub fn take(&self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        // It does not block.
        while let Ok(length @ 1..) = retry_on_intr(|| rustix::io::read(&self.reports, &mut piece)) {
            bytes.extend_from_slice(&piece[..length]);
        }
        let paths = bytes
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty());
        paths.map(<[u8]>::to_vec).collect()
    }
}

/// Starts the helper for the overlays over these stores. `is_limited`: they are an ordinary user's. This
/// process must have one thread only.
pub(super) fn start(bases: &[&Path], is_limited: bool) -> Result<Helper, Errno> {
    let (receiver, sender) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let (reports, reporter) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // SAFETY: this process has one thread, so its child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
        0 => {
            let code = run(receiver, reporter, bases, is_limited).is_err();
            // SAFETY: it runs nothing of the parent's.
            unsafe { libc::_exit(code.into()) }
        }
        helper => Ok(Helper {
            sender,
            refused: Refused {
                reports,
                helper: Pid::from_raw(helper).ok_or(Errno::AGAIN)?,
            },
        }),
    }
}

/// In the helper.
fn run(
    receiver: OwnedFd,
    reporter: OwnedFd,
    bases: &[&Path],
    is_limited: bool,
) -> Result<(), Errno> {
    stand_apart(vec![receiver.as_raw_fd(), reporter.as_raw_fd()])?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = openat(CWD, c"/proc", flags, Mode::empty())?;
    // Each directory on the way down a tree that is moved is open.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files)?;
    if is_limited {
        filter::give_up_file_rights()?;
    }
    // The launch may be tried again after a failure, and then there is another listener.
    loop {
        let (_, Some(place)) = receive_message(&receiver, &mut [0])? else {
            return Ok(());
        };
        let (_, Some(listener)) = receive_message(&receiver, &mut [0])? else {
            return Ok(());
        };
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Mount))?;
        drop(place);
        let devices = bases.iter().map(|base| Ok(stat(*base)?.st_dev));
        let helper = Server {
            listener: Listener::new(listener),
            namespace: readlinkat(&proc, c"self/ns/mnt", Vec::new())?,
            devices: devices.collect::<Result<_, Errno>>()?,
            proc: proc.as_fd(),
            reporter: reporter.as_fd(),
            bases,
            is_limited,
        };
        helper.serve();
    }
}

/// What the helper needs to serve one command and its descendants.
struct Server<'a> {
    listener: Listener,
    /// The `/proc` in which the processes have the numbers that the kernel tells.
    proc: BorrowedFd<'a>,
    reporter: BorrowedFd<'a>,
    /// The stores' roots.
    bases: &'a [&'a Path],
    /// The devices of the overlays.
    devices: Vec<u64>,
    /// The command's mount namespace, which is ours now.
    namespace: CString,
    is_limited: bool,
}

impl Server<'_> {
    /// Returns when no process has the filter any more.
    fn serve(&self) {
        loop {
            let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
            if retry_on_intr(|| poll(&mut polled, None)).is_err() {
                return;
            }
            let events = polled[0].revents();
            if !events.contains(PollFlags::IN) {
                return;
            }
            // The caller may have been killed meanwhile.
            let Ok(request) = self.listener.receive() else {
                continue;
            };
            let outcome = self.perform(&request).unwrap_or(Outcome::GoOn);
            self.listener.answer(&request, outcome);
        }
    }

    /// Reports a rename that nobody has performed. The report is left out if nobody reads them.
    fn report(&self, parent: BorrowedFd<'_>, name: &[u8]) {
        let mut path = self.path_of(parent).unwrap_or_default();
        path.push(b'/');
        path.extend_from_slice(name);
        path.push(0);
        let _ = rustix::io::write(self.reporter, &path);
    }

    /// The path of a directory, relative to the store's root. `None` if it is not in the store.
    fn within_store(&self, directory: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let path = self.path_of(directory)?;
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        let mut within = self.bases.iter().map(|base| path.strip_prefix(base));
        let within = within.find_map(Result::ok)?;
        Some(within.as_os_str().as_bytes().to_vec())
    }

    fn path_of(&self, directory: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let link = format!("self/fd/{}", directory.as_raw_fd());
        let path = readlinkat(self.proc, link, Vec::new()).ok()?;
        Some(path.into_bytes())
    }
}
