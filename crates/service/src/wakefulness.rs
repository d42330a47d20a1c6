//! Keeps processors from halting while views receive many requests.
//!
//! In the round trip of a request the processor that is to answer is woken, and then
//! the one that asked. On a virtual machine that takes the host, and may take longer
//! than all the rest, unless the processor polls for work. With cpuidle's driver
//! `haltpoll` this can be asked for: as long as `/dev/cpu_dma_latency` is held
//! open with the number 0 in it, none halts (Documentation/power/pm_qos_interface
//! of the kernel). It is the whole machine that then polls and the host that
//! pays, hence only while it is of use.

use crate::service::Service;
use crate::ticks::Ticks;
use rustix::fs::{Access, CWD, Mode, OFlags, access, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// `halt`: processors halt as they like.
const IDLE_VARIABLE: &str = "ATOMDIR_IDLE";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Fewer are not worth the host's time: a program that does nothing but wait for
/// its views makes more, also where waking takes 100 microseconds.
const REQUESTS_PER_SECOND: u128 = 4_000;
/// After many it is held on to until there are fewer than this: a program that
/// reads again what it has read waits now and then, and each time for that long.
const REQUESTS_PER_SECOND_LEAST: u128 = 400;
/// Of more, too many would poll for one that works.
const PROCESSORS_MAX: usize = 8;
const PERIOD: Duration = Duration::from_millis(25);

/// Whether the thread that [`run`]s is of any use in this process on this machine.
pub(crate) fn is_of_use() -> bool {
    std::env::var_os(IDLE_VARIABLE).is_none_or(|wish| wish != "halt")
        && rustix::process::geteuid().is_root()
        && can_poll(&read(DRIVER), &read(PROCESSORS))
        && access(DEVICE, Access::WRITE_OK).is_ok()
}

/// Nothing, if it cannot be read.
fn read(path: &str) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = [0; 256];
    let length = openat(CWD, path, flags, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut text))
        .unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn can_poll(driver: &str, online: &str) -> bool {
    let few = count(online).is_some_and(|count| count <= PROCESSORS_MAX);
    few && driver.trim_end() == "haltpoll"
}

/// How many processors a list such as `0-3,6` names.
fn count(online: &str) -> Option<usize> {
    let counts = online.trim_end().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    counts.sum()
}

fn are_more(requests: u64, during: Duration, per_second: u128) -> bool {
    u128::from(requests) * 1_000_000 > per_second * during.as_micros()
}

/// The thread's work, until the ticks end. It is to be woken when a transaction
/// begins, and goes on as long as any is open.
pub(crate) fn run(service: &Service, ticks: &Ticks) {
    let mut wakefulness = Wakefulness::of(DEVICE.as_ref());
    let mut since = Instant::now();
    // The first look after a sleep finds few requests in a long time, and the
    // second what there are.
    while ticks.next(PERIOD) {
        let now = Instant::now();
        if let Err(errno) = wakefulness.look(service.views.requests(), now - since) {
            tracing::warn!("cannot keep processors from halting: {errno}");
            return;
        }
        since = now;
        // Between two short transactions there is none.
        if wakefulness.held.is_some() || service.transactions.count() > 0 {
            ticks.wake();
        }
    }
}

/// Dropped, it lets go.
struct Wakefulness<'a> {
    device: &'a Path,
    held: Option<OwnedFd>,
    /// How many requests there had been at the last look.
    received: u64,
}

impl Wakefulness<'_> {
    fn of(device: &Path) -> Wakefulness<'_> {
        Wakefulness {
            device,
            held: None,
            received: 0,
        }
    }

    /// `received`: how many requests there have been by now; `during`: since the
    /// last look.
    fn look(&mut self, received: u64, during: Duration) -> Result<(), Errno> {
        // A mount that was made anew counts anew.
        let new = received.saturating_sub(self.received);
        self.received = received;
        if self.held.is_none() && are_more(new, during, REQUESTS_PER_SECOND) {
            self.held = Some(hold(self.device)?);
        } else if !are_more(new, during, REQUESTS_PER_SECOND_LEAST) {
            self.held = None;
        }
        Ok(())
    }
}

fn hold(device: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let held = openat(CWD, device, flags, Mode::empty())?;
    rustix::io::write(&held, &0_i32.to_ne_bytes())?;
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn processors_poll_under_haltpoll_and_if_they_are_few() {
        assert!(can_poll("haltpoll\n", "0\n"));
        assert!(can_poll("haltpoll\n", "0-3,5,8-10\n"));
        assert!(!can_poll("haltpoll\n", "0-8\n"));
        assert!(!can_poll("intel_idle\n", "0-1\n"));
        assert!(!can_poll("none\n", "0-1\n"));
        for unreadable in ["", "\n", "0-", "3-1", "0,,1", "all"] {
            assert!(!can_poll("haltpoll", unreadable), "{unreadable:?}");
        }
    }

    #[test]
    fn the_device_is_held_as_long_as_requests_are_many() {
        let device = memfd_create("latency", MemfdFlags::CLOEXEC).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", device.as_raw_fd()));
        let mut wakefulness = Wakefulness::of(&path);
        let mut held_after = |received, during| {
            wakefulness.look(received, during).unwrap();
            wakefulness.held.is_some()
        };
        assert!(!held_after(4_000, SECOND));
        assert!(held_after(8_001, SECOND));
        assert!(held_after(8_102, SECOND / 40));
        assert!(held_after(8_113, SECOND / 40));
        assert!(!held_after(8_123, SECOND / 40));
        assert!(!held_after(8_222, SECOND / 40));
        assert!(held_after(18_222, SECOND));
        // Another mount.
        assert!(!held_after(10, SECOND));
        assert!(!held_after(4_010, SECOND));
        let mut written = [1; 5];
        assert_eq!(rustix::io::read(&device, &mut written), Ok(4));
        assert_eq!(written, [0, 0, 0, 0, 1]);
        let mut without = Wakefulness::of("/nowhere/device".as_ref());
        assert_eq!(without.look(9_000, SECOND), Err(Errno::NOENT));
    }
}
