//! The signals that reach us while a command runs.
//!
//! The command is in our process group, so it gets the terminal's signals itself. A
//! signal that a process sends to us alone is meant for the command, and we pass it
//! on. So we block all these signals and read them from a descriptor. Stop signals
//! keep their effect: Ctrl-Z stops the group.
//!
//! A SIGHUP from the kernel means that the terminal was closed. It counts unless
//! SIGHUP was ignored when we were started, for example by nohup(1).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Signals that `atomdir` passes on to the command.
pub(super) const PASSED_ON: [libc::c_int; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

pub(super) enum Received {
    /// The process that we wait for has ended.
    Ended,
    /// A child ended or stopped.
    Child,
    /// Another process sent it to this process.
    ToPassOn(libc::c_int),
    /// The terminal sent it, to the command as well.
    FromTerminal,
    /// The terminal was closed.
    HangUp,
    TimedOut,
    /// The service has sent something, or hung up.
    FromService,
}

/// Sends a signal that was [received](Received::ToPassOn) to a process.
pub(super) fn send(process: Pid, signal: libc::c_int) -> io::Result<()> {
    match Signal::from_named_raw(signal) {
        Some(signal) => Ok(kill_process(process, signal)?),
        // Only named ones are received.
        None => Ok(()),
    }
}

/// Blocks the signals until it is dropped.
pub struct HeldSignals {
    descriptor: OwnedFd,
    original: libc::sigset_t,
    ignores_hang_up: bool,
}

impl HeldSignals {
    pub fn hold() -> io::Result<HeldSignals> {
        let mut held = set_of(&PASSED_ON);
        // SAFETY: every pointer is to a live, initialised set; the descriptor is new
        // and has no other owner.
        unsafe {
            libc::sigaddset(&mut held, libc::SIGCHLD);
            // While it is blocked, we may write to the terminal of a shell that has it.
            libc::sigaddset(&mut held, libc::SIGTTOU);
            // The process that started us may ignore SIGCHLD, and then the kernel
            // keeps no exit status for us.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut original = set_of(&[]);
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let descriptor = libc::signalfd(-1, &held, flags);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = OwnedFd::from_raw_fd(descriptor);
            check(libc::sigprocmask(libc::SIG_BLOCK, &held, &mut original))?;
            Ok(HeldSignals {
                descriptor,
                original,
                ignores_hang_up: is_ignored(libc::SIGHUP)?,
            })
        }
    }

    /// A child must call this before exec: it restores the mask that we got from our parent.
    pub(super) fn release_in_child(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let original = self.original;
        move || {
            // SAFETY: sigprocmask(2) is a system call that reads a live set.
            check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &original, ptr::null_mut()) })
        }
    }

    /// Gives all signals but SIGHUP their usual effect on us again.
    pub(super) fn hold_hang_up_only(mut self) -> HeldHangUp {
        // SAFETY: both calls read or change a live, initialised set.
        let was_blocked = unsafe {
            let is_member = libc::sigismember(&self.original, libc::SIGHUP);
            libc::sigaddset(&mut self.original, libc::SIGHUP);
            is_member == 1
        };
        HeldHangUp { was_blocked }
    }

    /// Waits, for at most `wait`, for the next signal, for the end of the descriptor's
    /// process, or until the service sends something or hangs up.
    pub(super) fn next(
        &self,
        process: &OwnedFd,
        service: Option<BorrowedFd<'_>>,
        wait: Option<Duration>,
    ) -> io::Result<Received> {
        let wait = wait.map(|wait| Timespec::try_from(wait).unwrap_or(LONGEST));
        loop {
            if let Some(received) = self.read()? {
                return Ok(received);
            }
            let awaited = match service {
                Some(_) => PollFlags::IN,
                None => PollFlags::empty(),
            };
            let mut descriptors = [
                PollFd::new(&self.descriptor, PollFlags::IN),
                PollFd::new(process, PollFlags::IN),
                PollFd::from_borrowed_fd(service.unwrap_or(process.as_fd()), awaited),
            ];
            match poll(&mut descriptors, wait.as_ref()) {
                Ok(0) => return Ok(Received::TimedOut),
                // If the terminal was closed before the command ended, report that
                // first, even if we notice both at once.
                Ok(_) if !descriptors[0].revents().is_empty() => {}
                Ok(_) if !descriptors[1].revents().is_empty() => return Ok(Received::Ended),
                Ok(_) if !descriptors[2].revents().is_empty() => return Ok(Received::FromService),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn read(&self) -> io::Result<Option<Received>> {
        let Some(information) = take_signal(self.descriptor.as_raw_fd())? else {
            return Ok(None);
        };
        let signal = information.ssi_signo as libc::c_int;
        Ok(Some(if signal == libc::SIGCHLD {
            Received::Child
        } else if information.ssi_code > 0 {
            if signal == libc::SIGHUP && !self.ignores_hang_up {
                Received::HangUp
            } else {
                Received::FromTerminal
            }
        } else {
            Received::ToPassOn(signal)
        }))
    }
}

const LONGEST: Timespec = Timespec {
    tv_sec: i32::MAX as i64,
    tv_nsec: 0,
};

/// A SIGHUP takes its effect on us when this is dropped.
pub struct HeldHangUp {
    was_blocked: bool,
}

impl Drop for HeldHangUp {
    fn drop(&mut self) {
        if !self.was_blocked {
            let hang_up = set_of(&[libc::SIGHUP]);
            // SAFETY: sigprocmask(2) is a system call that reads a live set.
            unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &hang_up, ptr::null_mut()) };
        }
    }
}

impl Drop for HeldSignals {
    /// Signals that the terminal sent late were meant for the command, which has
    /// ended. A late SIGTERM or SIGHUP takes its effect on us.
    fn drop(&mut self) {
        let late = set_of(&[libc::SIGINT, libc::SIGQUIT, libc::SIGCHLD]);
        let no_wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: every pointer is to a live value or null where that is allowed.
        unsafe {
            while libc::sigtimedwait(&late, ptr::null_mut(), &no_wait) > 0 {}
            libc::sigprocmask(libc::SIG_SETMASK, &self.original, ptr::null_mut());
        }
    }
}

/// Reads the next signal from a descriptor that signalfd(2) has made; `None` if there is
/// none yet. It makes only a system call, so it may be used after fork.
pub(super) fn take_signal(descriptor: RawFd) -> io::Result<Option<libc::signalfd_siginfo>> {
    let mut information = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the kernel fills the whole structure or leaves it; it is plain data.
    unsafe {
        if libc::read(descriptor, information.as_mut_ptr().cast(), size) == size as isize {
            return Ok(Some(information.assume_init()));
        }
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

pub(super) fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: this sigaction(2) changes nothing, and fills the structure if it succeeds.
    let action = unsafe {
        check(libc::sigaction(signal, ptr::null(), action.as_mut_ptr()))?;
        action.assume_init()
    };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
