//! Finds the process that has a store open, by the lock that it holds.
//!
//! The kernel lists all file locks in `/proc/locks`. So the answer is never out of date, as a
//! note in a file could be, and it costs nothing while nobody asks.

use super::asking::is_listening;
use super::kernel::{FileLock, kernel_text};
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fmt;
use std::os::fd::AsFd;

/// The name of the lock's file in the control directory.
const LOCK: &str = "lock";
/// `PF_EXITING` in the flags of `/proc/PID/stat`.
const EXITING: u64 = 4;
const KILL_SIGNAL: u64 = 1 << 8;

/// A process that has a store open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process's id, as this process sees it.
    pub process: u32,
    /// The program's name, as `ps` shows it.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} ({})", self.process, self.program)
    }
}

/// When a process gives up the store that it has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldHow {
    /// It is the store's service, which serves others.
    ByService,
    /// It has the store open for itself, and gives it up to anyone who wants it once no transaction
    /// and no file of it is open.
    UntilIdle,
    /// It has the store open for itself until it closes it or hands it over by itself.
    UntilClosed,
}

impl HeldHow {
    /// How a process that runs no service gives up the store with this control directory.
    pub fn of(control: impl AsFd) -> HeldHow {
        match is_listening(control) {
            true => HeldHow::UntilIdle,
            false => HeldHow::UntilClosed,
        }
    }
}

/// The end of the sentence that begins with "PROCESS has the store open".
impl fmt::Display for HeldHow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            HeldHow::ByService => " as its service",
            HeldHow::UntilIdle => {
                " in its own process, and hands it over to a service once no transaction and no file \
                 of it is open there"
            }
            HeldHow::UntilClosed => {
                " in its own process; try again when it has closed it or handed it over"
            }
        })
    }
}

/// Why a store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// `None` if it cannot be found, for example in another process namespace.
    pub holder: Option<Holder>,
    pub how: HeldHow,
}

impl Holder {
    /// Returns the holder of the store with this control directory. `None` if there is none,
    /// or it is in another process namespace.
    pub fn find(control: impl AsFd) -> Option<Holder> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let lock = statx(control, LOCK, flags, StatxFlags::INO).ok()?;
        let device = format!("{:02x}:{:02x}", lock.stx_dev_major, lock.stx_dev_minor);
        let locks = kernel_text("/proc/locks")?;
        let of_inode = || {
            let locks = locks.lines().filter_map(FileLock::parse);
            locks.filter(|found| found.class == "FLOCK" && found.inode == lock.stx_ino)
        };
        // Btrfs shows programs another device than it shows here.
        let found = of_inode()
            .find(|found| found.device == device)
            .or_else(|| of_inode().next().filter(|_| of_inode().count() == 1))?;
        let program = kernel_text(&format!("/proc/{}/comm", found.process))?;
        Some(Holder {
            process: found.process,
            program: program.trim_end().to_owned(),
        })
    }

    /// Whether the process runs the same program as this one.
    pub fn runs_our_program(&self) -> bool {
        kernel_text("/proc/self/comm").is_some_and(|ours| ours.trim_end() == self.program)
    }

    /// Whether the process has been killed or is ending, so that it will soon give the store
    /// back. A thread of it may still be in a system call.
    pub fn is_ending(&self) -> bool {
        let Some(stat) = kernel_text(&format!("/proc/{}/stat", self.process)) else {
            return true;
        };
        let Some(status) = kernel_text(&format!("/proc/{}/status", self.process)) else {
            return true;
        };
        // The name may contain anything, but the last parenthesis ends it. After it come the
        // state and, as the seventh field, the flags.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = fields.split_whitespace();
        let state = fields.next();
        let flags: u64 = fields
            .nth(5)
            .and_then(|flags| flags.parse().ok())
            .unwrap_or(0);
        let pending = status.lines().filter_map(|line| {
            let (name, mask) = line.split_once(':')?;
            matches!(name, "SigPnd" | "ShdPnd").then_some(mask.trim())
        });
        let is_killed = pending
            .filter_map(|mask| u64::from_str_radix(mask, 16).ok())
            .any(|mask| mask & KILL_SIGNAL != 0);
        matches!(state, Some("Z" | "X")) || flags & EXITING != 0 || is_killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};

    #[test]
    fn the_process_with_the_lock_is_found() {
        let directory = atomdir_testing::Scratch::new("holder");
        let path = directory.join(LOCK);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR).expect("made");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let control = openat(CWD, directory.path(), flags, Mode::empty()).expect("opened");
        assert_eq!(Holder::find(&control), None);
        flock(&file, FlockOperation::LockExclusive).expect("locked");
        let holder = Holder::find(&control).expect("this process has it");
        assert_eq!(holder.process, std::process::id());
        assert!(holder.runs_our_program() && !holder.is_ending());
    }

    #[test]
    fn a_process_that_has_ended_is_seen_to_end() {
        let mut child = std::process::Command::new("true").spawn().expect("started");
        let holder = Holder {
            process: child.id(),
            program: "true".to_owned(),
        };
        // The child stays a zombie until it is waited for.
        atomdir_testing::wait_until("the child's end", || holder.is_ending());
        child.wait().expect("ended");
        assert!(holder.is_ending());
    }
}
