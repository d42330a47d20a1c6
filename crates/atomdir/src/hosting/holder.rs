//! Finds the process that has a store open, by the lock that it holds.
//!
//! The kernel lists all file locks in `/proc/locks`. So the answer is never out of date, as a
//! note in a file could be, and it costs nothing while nobody asks. A child that the holder has forked
//! shares the lock and keeps it when the holder is killed. The list goes on to name the dead process
//! then, so the child is looked for in `/proc/PID/fdinfo`.

use super::asking::is_listening;
use super::kernel::{FileLock, kernel_text};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, statx};
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
    /// It is stopped, as by SIGSTOP, and gives nothing up before it goes on.
    Stopped,
    /// It is a child of the process that had the store open and has ended. It gives the store up when
    /// it ends.
    ByChild,
}

impl HeldHow {
    /// How a process that runs no service gives up the store with this control directory.
    pub fn of(control: impl AsFd, holder: Option<&Holder>) -> HeldHow {
        let is_child = |one: &Holder| {
            let lock = HeldLock::find(&control);
            lock.is_some_and(|lock| lock.process != one.process)
        };
        match holder {
            Some(holder) if is_child(holder) => HeldHow::ByChild,
            Some(holder) if holder.is_stopped() => HeldHow::Stopped,
            _ if is_listening(&control) => HeldHow::UntilIdle,
            _ => HeldHow::UntilClosed,
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
            HeldHow::Stopped => {
                " in its own process, which is stopped; try again when it goes on (SIGCONT)"
            }
            HeldHow::ByChild => {
                " because a program forked it that had the store open and has ended; try again when \
                 this process has ended, too"
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
        let lock = HeldLock::find(control)?;
        Holder::of(lock.process).or_else(|| Holder::of(lock.process_with_it()?))
    }

    fn of(process: u32) -> Option<Holder> {
        let program = kernel_text(&format!("/proc/{process}/comm"))?;
        Some(Holder {
            process,
            program: program.trim_end().to_owned(),
        })
    }

    /// Whether the process runs the same program as this one.
    pub fn runs_our_program(&self) -> bool {
        kernel_text("/proc/self/comm").is_some_and(|ours| ours.trim_end() == self.program)
    }

    fn is_stopped(&self) -> bool {
        let stat = kernel_text(&format!("/proc/{}/stat", self.process));
        stat.is_some_and(|stat| matches!(fields(&stat).next(), Some("T" | "t")))
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
        let mut fields = fields(&stat);
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

/// The fields of `/proc/PID/stat` after the name: the state and, as the seventh, the flags. The name
/// may contain anything, but the last parenthesis ends it.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace()
}

/// A store's lock, as the kernel lists it.
struct HeldLock {
    inode: u64,
    /// The process that took it.
    process: u32,
}

impl HeldLock {
    fn find(control: impl AsFd) -> Option<HeldLock> {
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
        Some(HeldLock {
            inode: found.inode,
            process: found.process,
        })
    }

    /// A process with a descriptor that has the lock.
    fn process_with_it(&self) -> Option<u32> {
        let is_it = |line: &str| {
            let found = line.strip_prefix("lock:").and_then(FileLock::parse);
            found.is_some_and(|found| (found.inode, found.process) == (self.inode, self.process))
        };
        numbers_in("/proc").into_iter().find(|process| {
            let descriptors = format!("/proc/{process}/fdinfo");
            let mut texts = numbers_in(&descriptors).into_iter();
            texts.any(|number| {
                let text = kernel_text(&format!("{descriptors}/{number}"));
                text.is_some_and(|text| text.lines().any(is_it))
            })
        })
    }
}

/// The names in a directory of `/proc` that are numbers.
fn numbers_in(directory: &str) -> Vec<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = openat(CWD, directory, flags, Mode::empty()).and_then(Dir::new);
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok());
    names.collect()
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
