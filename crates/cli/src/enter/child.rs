//! Starts the command and waits for it.

use super::descendants;
use super::launch::{Apart, Launch};
use super::renames::{self, Refused};
use super::seal::{self, Foreground};
use super::signals::{self, HeldHangUp, HeldSignals, Received};
use super::{EnterError, Overlay, SetUpFailure, ViewBinding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// How long a command's background processes may go on writing in a native view.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(1);
/// So many of them are watched for their end. Each takes a descriptor.
const WATCHED_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(u8),
    Killed {
        signal: i32,
    },
    /// Its time was over. It was killed, with all that it had started.
    TimedOut,
    /// Its transaction could not be committed any more, so it was killed in the same way.
    InVain,
    /// Its terminal was closed. It got SIGHUP, and was killed if that did not end it.
    HungUp,
}

/// A command that runs in a view.
pub struct Running<'a> {
    child: Child,
    process: Pid,
    /// The child's descriptor, to wait on.
    descriptor: OwnedFd,
    signals: HeldSignals,
    deadline: Option<Instant>,
    /// Children that we had before the command, which we never kill. A shell may have
    /// left us some by exec.
    others: Vec<Pid>,
    refused: Option<Refused>,
    without_namespace: Option<SetUpFailure>,
    sealed: Option<SealedRun>,
    service: Option<ServiceWatch<'a>>,
    /// The transaction cannot be committed any more.
    in_vain: bool,
    hung_up: bool,
}

/// What only a sealed command needs.
struct SealedRun {
    foreground: Foreground,
    /// Why it has no process namespace, if it has none.
    without_processes: Option<SetUpFailure>,
}

/// The connection on which the service may send messages while a command runs.
pub struct ServiceWatch<'a> {
    /// Readable when the service has sent something or hung up.
    pub descriptor: BorrowedFd<'a>,
    /// Reads its messages; false if it has hung up.
    pub read: &'a dyn Fn() -> bool,
    /// The command is ended when the service hangs up.
    pub is_vital: bool,
}

/// Starts `command`, whose first word is the program. `timeout` counts from now.
/// `environment` is added to our own.
pub fn start<'a>(
    binding: &ViewBinding,
    command: &[OsString],
    environment: &[(&str, OsString)],
    timeout: Option<Duration>,
    service: Option<ServiceWatch<'a>>,
) -> Result<Running<'a>, EnterError> {
    let mut launch = Launch {
        binding,
        command,
        environment,
        renames: None,
    };
    let signals = HeldSignals::hold().map_err(|source| launch.cannot_start(source))?;
    // It is none of the command's processes, so it starts before those are counted.
    let (bases, overlays): (Vec<&Path>, Vec<&Overlay>) = binding.overlays().unzip();
    let helper = match overlays.first() {
        // A command that joins may come from a view with a helper, and a process has only one.
        Some(overlay) if overlay.is_lent && renames::check().is_err() => None,
        Some(overlay) => Some(renames::start(&bases, overlay.is_limited)),
        None => None,
    };
    let helper = helper.transpose();
    let helper = helper.map_err(|errno| launch.cannot_start(errno.into()))?;
    launch.renames = helper.as_ref().map(|helper| helper.sender.as_fd());
    let failed = |source| launch.cannot_start(source);
    let others = descendants::children().map_err(failed)?;
    // The command's background processes become our children, so we can find them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| failed(errno.into()))?;
    let (child, without_namespace, sealed) = match &binding.sealing {
        Some(_) => {
            let (child, sealed) = spawn_sealed(&launch, &signals)?;
            (child, None, Some(sealed))
        }
        None => {
            let (child, without_namespace) = spawn(&launch, &signals)?;
            (child, without_namespace, None)
        }
    };
    let process = Pid::from_child(&child);
    let descriptor = pidfd_open(process, PidfdFlags::empty());
    Ok(Running {
        descriptor: descriptor.map_err(|errno| EnterError::Wait(errno.into()))?,
        process,
        child,
        signals,
        deadline: timeout.map(|timeout| Instant::now() + timeout),
        others,
        refused: helper.map(|helper| helper.refused),
        without_namespace,
        sealed,
        service,
        in_vain: false,
        hung_up: false,
    })
}

fn spawn(
    launch: &Launch<'_>,
    signals: &HeldSignals,
) -> Result<(Child, Option<SetUpFailure>), EnterError> {
    let overlay = launch.binding.overlays().next().is_some();
    match launch.spawn(signals, Apart::Mounts) {
        Err(EnterError::SetUp { failure, .. }) if failure.is_forbidden() && !overlay => {
            if !launch.binding.may_be_unbound || !launch.binding.also.is_empty() {
                let base = launch.binding.base.clone();
                return Err(EnterError::Forbidden { base, failure });
            }
            Ok((launch.spawn(signals, Apart::Nothing)?, Some(failure)))
        }
        other => Ok((other?, None)),
    }
}

/// Fails without a mount namespace, since a seal needs one.
fn spawn_sealed(
    launch: &Launch<'_>,
    signals: &HeldSignals,
) -> Result<(Child, SealedRun), EnterError> {
    seal::withhold_descriptors().map_err(|error| launch.cannot_start(error))?;
    let foreground = Foreground::note();
    let (child, without_processes) = match launch.spawn(signals, Apart::MountsAndProcesses) {
        Err(EnterError::SetUp { failure, .. }) if failure.is_forbidden() => {
            (launch.spawn(signals, Apart::Mounts), Some(failure))
        }
        other => (other, None),
    };
    let child = child.map_err(|error| match error {
        EnterError::SetUp { base, failure } => EnterError::Seal { base, failure },
        other => other,
    })?;
    let sealed = SealedRun {
        foreground,
        without_processes,
    };
    Ok((child, sealed))
}

impl Running<'_> {
    /// Why a sealed command has no process namespace, if it has none.
    pub fn without_processes(&self) -> Option<SetUpFailure> {
        self.sealed.as_ref()?.without_processes
    }

    /// Why the command runs under the view's own path, if it does.
    pub fn without_namespace(&self) -> Option<SetUpFailure> {
        self.without_namespace
    }

    /// Waits until the command itself has ended. Its background processes may still
    /// run, but none of a sealed command.
    pub fn wait(&mut self) -> Result<Ended, EnterError> {
        let ended = self.wait_or_kill().map_err(EnterError::Wait)?;
        if let Some(sealed) = &self.sealed {
            // If something has killed the mirror, what it watched is ours now. It must be gone before
            // we drop what was typed into the terminal.
            let left = descendants::children().map_err(EnterError::Wait)?;
            let is_left = left.iter().any(|child| !self.others.contains(child));
            if is_left || sealed.without_processes.is_some() {
                self.kill_all().map_err(EnterError::Wait)?;
            }
            sealed.foreground.take_back();
        }
        Ok(ended)
    }

    /// Nothing that the command does can be committed any more, so it is to be killed.
    pub fn give_up(&mut self) {
        self.in_vain = true;
    }

    /// What is left when the command has ended. Signals have their usual effect on us again, but
    /// SIGHUP only when the second value is dropped.
    pub fn into_remainder(self) -> (Remainder, HeldHangUp) {
        let remainder = Remainder {
            others: self.others,
            refused: self.refused,
        };
        (remainder, self.signals.hold_hang_up_only())
    }

    fn signal_all(&self, signal: Signal) -> io::Result<bool> {
        signal_all(&self.others, signal)
    }

    fn kill_all(&self) -> io::Result<()> {
        kill_all(&self.others)
    }

    fn wait_or_kill(&mut self) -> io::Result<Ended> {
        if !self.in_vain
            && let Some(status) = self.wait_until(self.deadline)?
        {
            return Ok(ended(status));
        }
        if self.hung_up {
            return self.hang_up();
        }
        self.signal_all(Signal::TERM)?;
        self.wait_until(Some(Instant::now() + GRACE))?;
        self.kill_all()?;
        self.child.wait()?;
        match self.in_vain {
            true => Ok(Ended::InVain),
            false => Ok(Ended::TimedOut),
        }
    }

    /// When a terminal is closed, the kernel signals only the session's leader, and
    /// the others when the leader has ended. If we lead the session, we must signal
    /// the command. It may be stopped, and must then continue before it can end.
    fn hang_up(&mut self) -> io::Result<Ended> {
        self.pass_on(libc::SIGHUP)?;
        self.pass_on(libc::SIGCONT)?;
        if self.wait_until(Some(Instant::now() + GRACE))?.is_none() {
            self.kill_all()?;
            self.child.wait()?;
        }
        Ok(Ended::HungUp)
    }

    /// Returns `None` if the deadline passed first, a vital service hung up, or the
    /// terminal was closed.
    fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let service = self.service.as_ref().map(|service| service.descriptor);
            match self.signals.next(&self.descriptor, service, left)? {
                Received::TimedOut => return Ok(None),
                Received::FromService => {
                    let service = self.service.take_if(|service| !(service.read)());
                    if service.is_some_and(|service| service.is_vital) {
                        self.in_vain = true;
                        return Ok(None);
                    }
                }
                Received::Ended => return self.child.wait().map(Some),
                Received::Child => self.follow_stop()?,
                Received::HangUp if !self.hung_up => {
                    self.hung_up = true;
                    return Ok(None);
                }
                Received::FromTerminal | Received::HangUp => {}
                Received::ToPassOn(signal) => self.pass_on(signal)?,
            }
        }
    }

    /// Stops us if the command stopped itself, as a shell's `suspend` does. The other
    /// stop signals come from the terminal, which stops us too.
    fn follow_stop(&self) -> io::Result<()> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::Pid(self.process), options) {
            // It has ended, so it cannot stop any more.
            Err(Errno::CHILD) => None,
            other => other?,
        };
        let signal = status.and_then(|status| status.stopping_signal());
        if signal == Some(Signal::STOP.as_raw()) {
            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
            rustix::process::kill_process(self.process, Signal::CONT)?;
        }
        Ok(())
    }

    fn pass_on(&self, signal: i32) -> io::Result<()> {
        // The child is not reaped yet, so the process id is still its own.
        signals::send(self.process, signal)
    }
}

/// Which of our children are background processes that a command has left.
#[derive(Debug, Clone)]
pub struct Background {
    /// Those that are not.
    others: Vec<Pid>,
}

impl Background {
    /// Those that still run, with their names.
    pub fn running(&self) -> Vec<(i32, Vec<u8>)> {
        let left = descendants::left(&self.others).unwrap_or_default();
        let left = left.into_iter();
        left.map(|(process, name)| (process.as_raw_nonzero().get(), name))
            .collect()
    }
}

/// The background processes that a command has left.
pub struct Remainder {
    /// Our children that are none of them.
    others: Vec<Pid>,
    refused: Option<Refused>,
}

impl Remainder {
    pub fn background(&self) -> Background {
        Background {
            others: self.others.clone(),
        }
    }

    /// The whole paths of what overlayfs has refused to rename.
    pub fn refused_renames(&self) -> Vec<Vec<u8>> {
        self.refused.as_ref().map_or_else(Vec::new, Refused::take)
    }

    /// Ends all writing in the overlay that the command ran in. Background processes
    /// have a moment to finish; then they get SIGTERM, and at last they are killed.
    /// Returns whether they got a signal.
    pub fn end_writing(&self, overlay: &Overlay) -> Result<bool, EnterError> {
        let is_read_only = |patience| is_read_only(overlay, &self.others, patience);
        if is_read_only(PATIENCE)? {
            return Ok(false);
        }
        if !signal_all(&self.others, Signal::TERM).map_err(EnterError::Wait)? {
            // The writer is no child of ours, or has just ended.
            return match is_read_only(PATIENCE)? {
                true => Ok(false),
                false => Err(EnterError::LeftBehind(Errno::BUSY)),
            };
        }
        if !is_read_only(GRACE)? {
            kill_all(&self.others).map_err(EnterError::Wait)?;
            if !is_read_only(GRACE)? {
                return Err(EnterError::LeftBehind(Errno::BUSY));
            }
        }
        Ok(true)
    }
}

/// Signals our descendants, except `others` and theirs. Returns whether there was one.
fn signal_all(others: &[Pid], signal: Signal) -> io::Result<bool> {
    let living = descendants::living(others)?;
    for process in &living {
        // The process may have ended since.
        let _ = rustix::process::kill_process(*process, signal);
    }
    Ok(!living.is_empty())
}

/// Kills in rounds: the next one finds processes that were started during the last.
fn kill_all(others: &[Pid]) -> io::Result<()> {
    while signal_all(others, Signal::KILL)? {
        std::thread::yield_now();
    }
    Ok(())
}

/// Tries to make the overlay read-only while others may write. It tries again when one of our
/// descendants ends. The kernel does not report when a process that lives on, or one that is not
/// our descendant, has closed its files, so it also tries at intervals.
fn is_read_only(overlay: &Overlay, others: &[Pid], patience: Duration) -> Result<bool, EnterError> {
    let begun = Instant::now();
    let mut writers = None;
    loop {
        match overlay.make_read_only() {
            Ok(()) => return Ok(true),
            Err(Errno::BUSY) if begun.elapsed() < patience => {}
            Err(Errno::BUSY) => return Ok(false),
            Err(errno) => return Err(EnterError::LeftBehind(errno)),
        }
        // Those that they start later are found at the next interval.
        let writers = match &mut writers {
            Some(writers) => writers,
            None => writers.insert(living(others)?),
        };
        let interval = (begun.elapsed() / 5).max(RETRY_PAUSE_MIN);
        wait_for_end(writers, interval);
    }
}

/// The descriptors of our living descendants, except `others` and theirs.
fn living(others: &[Pid]) -> Result<Vec<OwnedFd>, EnterError> {
    let living = descendants::living(others).map_err(EnterError::Wait)?;
    // One that has ended by now has no descriptor.
    let opened = living
        .into_iter()
        .map(|id| pidfd_open(id, PidfdFlags::empty()));
    Ok(opened.flatten().take(WATCHED_MAX).collect())
}

/// Waits until one of the processes has ended, at most so long. Leaves out those that have.
fn wait_for_end(processes: &mut Vec<OwnedFd>, time: Duration) {
    let time = Timespec::try_from(time).ok();
    let watch = |process| PollFd::new(process, PollFlags::IN);
    let mut polled: Vec<_> = processes.iter().map(watch).collect();
    if poll(&mut polled, time.as_ref()).is_ok() {
        let ended: Vec<_> = polled.iter().map(PollFd::revents).collect();
        let mut ended = ended.into_iter();
        processes.retain(|_| ended.next().is_none_or(|events| events.is_empty()));
    }
}

pub(super) fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code as u8),
        (None, Some(signal)) => Ended::Killed { signal },
        (None, None) => Ended::Exited(u8::MAX),
    }
}

impl Ended {
    /// The exit code that a shell would report.
    pub fn exit_code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::Killed { signal } => 128u8.wrapping_add(signal as u8),
            Ended::TimedOut => 124,
            Ended::HungUp => 128 + Signal::HUP.as_raw() as u8,
            Ended::InVain => 128 + Signal::KILL.as_raw() as u8,
        }
    }
}
