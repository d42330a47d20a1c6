//! Waiting for a store that another process still has open.

use super::asking::ask;
use super::holder::{HeldBy, HeldHow, Holder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A killed process may hold the lock until its last system call is done.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The kernel reports the end of a process, but not that a living one gives the lock back, and it
/// has no lock with a time limit. So for a living one we try again at intervals.
const RETRY: Duration = Duration::from_millis(20);
/// So often a holder must seem alive: between the signal and its end there is a moment in
/// which a killed process does.
const LOOKS: u32 = 3;
/// And so often one that gives the store up once its transactions have ended: for 2 s.
const LOOKS_WHEN_ASKED: u32 = 100;

/// Waits for a store as long as its holder may soon give it back.
pub struct LockPatience {
    ends: Instant,
    looks: u32,
    has_listened: bool,
}

impl LockPatience {
    #[allow(clippy::new_without_default, reason = "it starts a time")]
    pub fn new() -> LockPatience {
        LockPatience {
            ends: Instant::now() + TIME_MAX,
            looks: 0,
            has_listened: false,
        }
    }

    /// Waits before the next attempt: for the end of a holder that is ending, or a little. Asks a
    /// living holder to give the store up. Fails when there is no point in another attempt. `is_brief`:
    /// whether a holder is known to give the store back soon.
    pub fn wait(
        &mut self,
        control: impl AsFd,
        is_brief: impl Fn(&Holder) -> bool,
    ) -> Result<(), HeldBy> {
        let holder = Holder::find(&control);
        let is_ending = holder.as_ref().is_some_and(Holder::is_ending);
        let stays = holder
            .as_ref()
            .is_some_and(|holder| !is_brief(holder) && !is_ending);
        // While it closes the store it does not listen any more.
        self.has_listened |= stays && ask(&control);
        self.looks = if stays { self.looks + 1 } else { 0 };
        let looks_max = match self.has_listened {
            true => LOOKS_WHEN_ASKED,
            false => LOOKS,
        };
        let left = self.ends.saturating_duration_since(Instant::now());
        if self.looks >= looks_max || left.is_zero() {
            let how = HeldHow::of(&control, holder.as_ref());
            return Err(HeldBy { holder, how });
        }
        let time = if is_ending { left } else { left.min(RETRY) };
        match holder {
            Some(holder) => wait_for_end(&holder, time),
            None => std::thread::sleep(time),
        }
        Ok(())
    }
}

/// Waits until the process has ended, at most so long.
fn wait_for_end(holder: &Holder, time: Duration) {
    let process = i32::try_from(holder.process).ok().and_then(Pid::from_raw);
    // If it has ended by now, there is nothing to wait for.
    let Some(Ok(process)) = process.map(|process| pidfd_open(process, PidfdFlags::empty())) else {
        return;
    };
    let time = Timespec::try_from(time).ok();
    // After an interruption the next attempt comes early.
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], time.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_testing::{Scratch, wait_until};
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use rustix::process::{Signal, kill_process};
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command};

    #[test]
    fn a_wait_for_a_killed_holder_lasts_until_its_end() {
        let scratch = Scratch::new("patience");
        let mut holder = Command::new("flock")
            .args(["--no-fork", "lock", "sleep", "1000"])
            .current_dir(scratch.path())
            .spawn()
            .expect("started");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let control = openat(CWD, scratch.path(), flags, Mode::empty()).expect("opened");
        wait_until("the lock", || Holder::find(&control).is_some());
        holder.kill().expect("killed");
        let mut patience = LockPatience::new();
        // Between the signal and its end there is a moment in which it seems alive.
        wait_until("the sign of its end", || {
            Holder::find(&control).is_none_or(|holder| holder.is_ending())
        });
        patience.wait(&control, |_| false).expect("it is ending");
        assert_eq!(Holder::find(&control), None);
        holder.wait().expect("ended");
    }

    fn held(scratch: &Scratch, script: &str) -> (Child, OwnedFd) {
        let holder = Command::new("sh")
            .args(["-c", script])
            .current_dir(scratch.path())
            .spawn()
            .expect("started");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let control = openat(CWD, scratch.path(), flags, Mode::empty()).expect("opened");
        wait_until("the lock", || Holder::find(&control).is_some());
        (holder, control)
    }

    fn refused(control: &OwnedFd) -> HeldBy {
        let mut patience = LockPatience::new();
        let found = (0..LOOKS).find_map(|_| patience.wait(control, |_| false).err());
        found.expect("it stays")
    }

    #[test]
    fn a_holder_that_stays_is_named() {
        let scratch = Scratch::new("patience-stays");
        let script = "exec flock --no-fork lock sleep 1000";
        let (mut holder, control) = held(&scratch, script);
        let number = Some(holder.id());
        let found = refused(&control);
        assert_eq!(found.how, HeldHow::UntilClosed);
        assert_eq!(found.holder.map(|found| found.process), number);
        let process = Pid::from_child(&holder);
        kill_process(process, Signal::STOP).expect("it is there");
        wait_until("the stop", || refused(&control).how == HeldHow::Stopped);
        holder.kill().expect("killed");
        holder.wait().expect("ended");
    }

    #[test]
    fn a_child_that_keeps_the_lock_of_a_dead_process_is_named() {
        // The kernel lists such a lock only in its first process namespace.
        let own = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
        if own.expect("read").as_bytes() != b"pid:[4026531836]" {
            let test = "a_child_that_keeps_the_lock_of_a_dead_process_is_named";
            return atomdir_testing::skip(test, "not in the first process namespace");
        }
        let scratch = Scratch::new("patience-child");
        let (mut holder, control) = held(&scratch, "exec 9> lock; flock 9; exec sleep 1000");
        wait_until("the end of `flock`", || {
            let found = refused(&control);
            found.holder.map(|found| found.process) == Some(holder.id())
                && found.how == HeldHow::ByChild
        });
        holder.kill().expect("killed");
        holder.wait().expect("ended");
    }
}
