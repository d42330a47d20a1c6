//! Lends the mount of a native view to another client, which attaches it in namespaces of its
//! own.
//!
//! The kernel clones a mount only for a process of the mount namespace in which it is attached,
//! and that is the command's. The command may have left that namespace, so we keep a descriptor of
//! it: the child process sends it before it becomes the command. To clone the mount, another child
//! enters the namespace, since a process that enters one loses its current directory and root.

use super::Overlay;
use super::seal::set_attributes;
use atomdir::client::{reason, refuse_mount, send_descriptor};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sends a clone of the mount over the socket, or the reason why there is none.
pub fn lend(overlay: &Overlay, socket: &OwnedFd) {
    let Some(place) = overlay.place() else {
        return refuse_mount(socket.as_fd(), "its command has not started yet");
    };
    let sent = within(place, || {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = open_tree(overlay, c"", flags)?;
        send_descriptor(socket.as_fd(), mount.as_fd())
    });
    if let Err(errno) = sent {
        refuse_mount(socket.as_fd(), &reason(errno).to_string());
    }
}

/// Fails with `EBUSY` while a file is open for writing through this mount.
pub(super) fn make_mount_read_only(overlay: &Overlay) -> Result<(), Errno> {
    let place = overlay.place().ok_or(Errno::INVAL)?;
    within(place, || {
        rustix::process::fchdir(overlay)?;
        set_attributes(c".", 0, libc::MOUNT_ATTR_RDONLY, 0)
    })
}

/// Sends our mount namespace. It makes only system calls, so it may be used after fork.
pub(super) fn send_place(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let place = rustix::fs::open(c"/proc/self/ns/mnt", flags, Mode::empty())?;
    send_descriptor(socket, place.as_fd())
}

/// Calls `act` in a child process that is in the mount namespace. `act` may only make system calls.
fn within(place: &OwnedFd, act: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    // SAFETY: the child only makes system calls, and does not return.
    match unsafe { libc::fork() } {
        0 => {
            let kind = Some(LinkNameSpaceType::Mount);
            let done = move_into_link_name_space(place.as_fd(), kind).and_then(|()| act());
            // Every error number of Linux fits into an exit code.
            let code = done.map_or_else(Errno::raw_os_error, |()| 0);
            // SAFETY: it runs no handlers, which are the parent's.
            unsafe { libc::_exit(code) }
        }
        child => {
            let child = Pid::from_raw(child).ok_or(Errno::AGAIN)?;
            let ended = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()))?;
            match ended.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(code) => Err(Errno::from_raw_os_error(code)),
                None => Err(Errno::INTR),
            }
        }
    }
}
