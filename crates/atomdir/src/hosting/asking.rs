//! Asking the process that has a store open to give it up.
//!
//! A process that is ready to do so reads from a named pipe in the control directory, and whoever
//! wants the store writes to it. A pipe without a reader cannot be opened for writing. So who asks
//! learns at once whether anybody listens, also if a process was killed and has left its pipe.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkfifoat, openat, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "wanted";

/// The end of the pipe at which the process with the store listens.
#[derive(Debug)]
pub(crate) struct Requests {
    pipe: OwnedFd,
    control: OwnedFd,
    is_removed: AtomicBool,
}

impl Requests {
    /// To be called with the store's lock held.
    pub(crate) fn open(control: OwnedFd) -> Result<Requests, Errno> {
        // A killed process has left its pipe, and a child of it may still listen there. Nobody else can
        // need what has this name, since this process has the store.
        match unlinkat(&control, NAME, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => unlinkat(&control, NAME, AtFlags::REMOVEDIR)?,
            Err(errno) => return Err(errno),
        }
        mkfifoat(&control, NAME, Mode::RUSR | Mode::WUSR)?;
        // With a writer of its own it sees no end when another writer has gone.
        let pipe = open_pipe(&control, OFlags::RDWR)?;
        Ok(Requests {
            pipe,
            control,
            is_removed: AtomicBool::new(false),
        })
    }

    /// Returns when somebody has asked since the last call, or has called [`wake`](Self::wake).
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut asked = [0; 256];
        loop {
            match rustix::io::read(&self.pipe, &mut asked) {
                Ok(count) if count == asked.len() => {}
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(crate) fn wake(&self) {
        // A full pipe wakes as well.
        let _ = rustix::io::write(&self.pipe, &[0]);
    }

    /// To be called before the store's lock is given back, since the next process with the store
    /// makes a pipe of its own. Only the first call does something.
    pub(crate) fn remove(&self) {
        if self.is_removed.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(errno) = unlinkat(&self.control, NAME, AtFlags::empty()) {
            tracing::debug!(%errno, "the pipe for requests was not removed");
        }
    }
}

/// Whether the process that has the store open gives it up when asked while nothing is open there.
pub(crate) fn is_listening(control: impl AsFd) -> bool {
    open_pipe(control, OFlags::WRONLY).is_ok()
}

/// Asks that process. Returns whether it listens. Who still wants the store a moment later asks again.
pub(crate) fn ask(control: impl AsFd) -> bool {
    match open_pipe(control, OFlags::WRONLY) {
        // A full pipe has been written to often enough.
        Ok(pipe) => matches!(rustix::io::write(pipe, &[0]), Ok(_) | Err(Errno::AGAIN)),
        Err(_) => false,
    }
}

fn open_pipe(control: impl AsFd, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = openat(control, NAME, access | flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&pipe)?.st_mode) {
        FileType::Fifo => Ok(pipe),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_disk::LinuxDisk;

    #[test]
    fn only_a_process_that_listens_is_asked() {
        let scratch = atomdir_testing::Scratch::new("asking");
        let control = || LinuxDisk::open_root(scratch.path()).expect("opened");
        assert!(!ask(control()));
        let requests = Requests::open(control()).expect("a pipe");
        assert!(is_listening(control()) && ask(control()));
        requests.wait().expect("asked");
        // As after a kill.
        drop(requests);
        assert!(!is_listening(control()) && !ask(control()));
        let requests = Requests::open(control()).expect("the pipe that was left");
        assert!(ask(control()));
        requests.remove();
        drop(requests);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(control(), NAME, flags, Mode::RUSR | Mode::WUSR).expect("a file in its place");
        assert!(!ask(control()));
    }

    #[test]
    fn a_directory_in_the_place_of_the_pipe_is_replaced() {
        let scratch = atomdir_testing::Scratch::new("asking-directory");
        let control = || LinuxDisk::open_root(scratch.path()).expect("opened");
        rustix::fs::mkdirat(control(), NAME, Mode::RWXU).expect("made");
        let requests = Requests::open(control()).expect("a pipe");
        assert!(ask(control()));
        requests.remove();
    }

    /// A child that was forked by a process which was killed has its parent's pipe.
    #[test]
    fn a_pipe_that_was_left_with_a_listener_is_replaced() {
        let scratch = atomdir_testing::Scratch::new("asking-left");
        let control = || LinuxDisk::open_root(scratch.path()).expect("opened");
        let of_a_child = Requests::open(control()).expect("a pipe");
        let requests = Requests::open(control()).expect("a pipe of its own");
        requests.remove();
        assert!(!is_listening(control()));
        drop(of_a_child);
    }

    #[test]
    fn a_full_pipe_refuses_nobody() {
        let scratch = atomdir_testing::Scratch::new("asking-full");
        let control = || LinuxDisk::open_root(scratch.path()).expect("opened");
        let requests = Requests::open(control()).expect("a pipe");
        for _ in 0..70_000 {
            requests.wake();
        }
        assert!(ask(control()));
        requests.wait().expect("asked");
        let mut polled = [PollFd::new(&requests.pipe, PollFlags::IN)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut polled, Some(&now)), Ok(0));
    }
}
