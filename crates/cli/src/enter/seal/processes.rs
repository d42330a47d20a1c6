//! A process namespace for a command.
//!
//! ```text
//! atomdir             waits, passes signals on
//!   mirror            ends and stops as the command does
//!     first process   of the namespace; mounts /proc, waits for orphans
//!       command
//! ```
//!
//! When the first process of a namespace ends, the kernel kills all others in it and
//! waits for them. So after the mirror has ended, nothing runs that the command
//! started. The first process ends with the command, and also when the mirror ends.
//! The kernel kills the mirror when `atomdir` dies.
//!
//! Everything here runs after fork, so it makes only system calls.

use super::{Errno, Step, checked, protect_proc};
use crate::enter::signals::{PASSED_ON, set_of, take_signal};
use rustix::mount::{MountFlags, mount};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

/// The first process sends these to the mirror: how the command ended, or that it
/// stopped itself.
const EXITED: u8 = 1;
const KILLED: u8 = 2;
const STOPPED: u8 = 3;

/// Splits this process, which has unshared the process namespace of its children, into
/// the mirror, the first process, and the process that executes the command. Returns
/// only in the last. `fail` reports a failure.
pub(in crate::enter) fn supervise(fail: &dyn Fn(Step, Errno)) -> Result<(), (Step, Errno)> {
    let failed = |errno| (Step::Processes, errno);
    let parent = rustix::process::getppid();
    let (mirrors, firsts) = channel().map_err(failed)?;
    // Until the command is ready, a signal must not end only some of the processes.
    mask(&all_signals_but(&[]));
    match fork().map_err(failed)? {
        0 => {}
        first => {
            // SAFETY: prctl(2) with this operation takes plain numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
            // The parent may have died before the call.
            if rustix::process::getppid() != parent {
                exit(1);
            }
            close_all_but(mirrors);
            mirror(
                first,
                mirrors,
                parent.map_or(0, |id| id.as_raw_nonzero().get()),
            );
        }
    }
    let command = mount_proc().and_then(|()| fork());
    match command {
        Ok(0) => {
            close(mirrors);
            close(firsts);
            Ok(())
        }
        Ok(command) => {
            // The command must not trace us and so get our capabilities.
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
            close_all_but(firsts);
            attend(command, firsts)
        }
        Err(errno) => {
            fail(Step::Processes, errno);
            exit(1)
        }
    }
}

/// Shows the processes of the namespace and no others. A confined command may write there, too: what
/// is not a setting of the machine belongs to these processes.
fn mount_proc() -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None)?;
    protect_proc()
}

/// The main loop of the namespace's first process.
fn attend(command: libc::pid_t, mirror: RawFd) -> ! {
    let signals = signal_descriptor(&set_of(&[libc::SIGCHLD]));
    loop {
        let [from_mirror, of_children] = wait_for([mirror, signals]);
        if from_mirror {
            match receive(mirror) {
                // SAFETY: kill(2) takes plain numbers; the command is not reaped yet.
                Some([signal, _]) => unsafe { libc::kill(command, signal.into()) },
                None => exit(1),
            };
        }
        if of_children {
            // One signal may stand for several children.
            let _ = take_signal(signals);
            reap(command, mirror);
        }
    }
}

/// Waits for children; ends the process with the command.
fn reap(command: libc::pid_t, mirror: RawFd) {
    while let Some((process, code, status)) = wait_child() {
        if process != command {
            continue;
        }
        match code {
            libc::CLD_EXITED => send(mirror, [EXITED, status as u8]),
            libc::CLD_STOPPED if status == libc::SIGSTOP => {
                send(mirror, [STOPPED, 0]);
                continue;
            }
            libc::CLD_STOPPED => continue,
            _ => send(mirror, [KILLED, status as u8]),
        }
        exit(0)
    }
}

/// The main loop of the mirror, outside of the namespace.
fn mirror(first: libc::pid_t, channel: RawFd, parent: libc::pid_t) -> ! {
    let signals = signal_descriptor(&set_of(&PASSED_ON));
    // The command can signal our process group, and so must not end us or stop us alone. SIGTSTP
    // and SIGTTIN stop us together with the rest of the job.
    mask(&all_signals_but(&[libc::SIGTSTP, libc::SIGTTIN]));
    let mut ended = [KILLED, libc::SIGKILL as u8];
    loop {
        let [from_first, of_parent] = wait_for([channel, signals]);
        if of_parent
            && let Ok(Some(signal)) = take_signal(signals)
            // Signals that others send to the whole group reach the command directly.
            && signal.ssi_pid as libc::pid_t == parent
        {
            send(channel, [signal.ssi_signo as u8, 0]);
        }
        if !from_first {
            continue;
        }
        match receive(channel) {
            Some([STOPPED, _]) => {
                // SAFETY: raise(3) takes a plain number.
                unsafe { libc::raise(libc::SIGSTOP) };
                send(channel, [libc::SIGCONT as u8, 0]);
            }
            Some(how) => ended = how,
            None => break,
        }
    }
    // After this wait nothing is left in the namespace, not even its first process.
    // SAFETY: the status is not wanted.
    unsafe { libc::waitpid(first, ptr::null_mut(), 0) };
    match ended {
        [EXITED, code] => exit(code.into()),
        [_, signal] => die_of(signal.into()),
    }
}

/// Ends by the signal that killed the command, so that our parent sees that signal.
fn die_of(signal: libc::c_int) -> ! {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: all arguments are plain numbers or live values.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        // No other signal that has come meanwhile may end us.
        mask(&all_signals_but(&[signal]));
    }
    exit(128 + signal)
}

fn channel() -> Result<(RawFd, RawFd), Errno> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for both.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    checked(made.into())?;
    Ok((ends[0], ends[1]))
}

fn fork() -> Result<libc::pid_t, Errno> {
    // SAFETY: this process has one thread, and both processes then make only system calls.
    let process = unsafe { libc::fork() };
    checked(process.into())?;
    Ok(process)
}

fn exit(code: libc::c_int) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(code) }
}

fn close(descriptor: RawFd) {
    // SAFETY: this closes only descriptors of ours that nothing else uses.
    unsafe { libc::close(descriptor) };
}

/// Also closes the standard three: a reader of the command's output waits until the
/// last process has closed it.
fn close_all_but(kept: RawFd) {
    let kept = kept as libc::c_uint;
    // SAFETY: nothing in this process uses the closed descriptors.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}

fn all_signals_but(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in signals {
            libc::sigdelset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

fn mask(set: &libc::sigset_t) {
    // SAFETY: the set is live; we do not need the old mask.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, set, ptr::null_mut()) };
}

fn signal_descriptor(set: &libc::sigset_t) -> RawFd {
    // SAFETY: the set is live.
    let descriptor = unsafe { libc::signalfd(-1, set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    match descriptor {
        -1 => exit(1),
        descriptor => descriptor,
    }
}

/// Returns the next child that has ended or stopped, and how.
fn wait_child() -> Option<(libc::pid_t, libc::c_int, libc::c_int)> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: the structure is plain data, and its process is 0 if none was found.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut found, options);
        (result == 0 && found.si_pid() != 0)
            .then(|| (found.si_pid(), found.si_code, found.si_status()))
    }
}

fn wait_for(descriptors: [RawFd; 2]) -> [bool; 2] {
    let mut polled = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the array is live. After an error nothing is ready, and the caller tries again.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
    polled.map(|one| one.revents != 0)
}

/// Ignores that the other end may be closed: receiving reports that.
fn send(channel: RawFd, message: [u8; 2]) {
    // SAFETY: the message is live.
    unsafe { libc::send(channel, message.as_ptr().cast(), 2, libc::MSG_NOSIGNAL) };
}

/// Returns `None` if the other end is closed.
fn receive(channel: RawFd) -> Option<[u8; 2]> {
    let mut message = [0; 2];
    // SAFETY: the buffer is live.
    let count = unsafe { libc::recv(channel, message.as_mut_ptr().cast(), 2, 0) };
    (count == 2).then_some(message)
}
