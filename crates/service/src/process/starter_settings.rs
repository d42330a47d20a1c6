//! Gives up the settings that a service inherits from the process that happened to start it, as
//! far as it may: limits, priorities, processors, control group. Root may give up all of them; for
//! others the service tells its clients what is left (`Surroundings`).
//!
//! Must come before the process becomes the store's owner. No failure counts.

use rustix::fs::{CWD, Mode, OFlags, openat, statfs};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// What systemd gives its services.
const OPEN_FILES_MAX: u64 = 524_288;
const CGROUP2_MAGIC: rustix::fs::FsWord = 0x6367_7270;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

pub(crate) fn leave() {
    lift_limits();
    reset_scheduling();
    write("/proc/self/oom_score_adj", b"0");
    // SAFETY: both take plain numbers, and change only this process: addresses are random again,
    // and timers as exact as usual.
    unsafe {
        libc::personality(0);
        libc::prctl(libc::PR_SET_TIMERSLACK, 0, 0, 0, 0);
    }
    leave_control_group();
}

fn lift_limits() {
    let limits = [
        Resource::Fsize,
        Resource::Cpu,
        Resource::As,
        Resource::Data,
        Resource::Rss,
        Resource::Nproc,
        Resource::Memlock,
        Resource::Sigpending,
        Resource::Rttime,
    ];
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    for resource in limits {
        if setrlimit(resource, none).is_err() {
            raise(resource);
        }
    }
    let now = getrlimit(Resource::Nofile).maximum;
    let wanted = Some(now.unwrap_or(0).max(OPEN_FILES_MAX));
    let enough = Rlimit {
        current: wanted,
        maximum: wanted,
    };
    if now.is_none() || setrlimit(Resource::Nofile, enough).is_err() {
        raise(Resource::Nofile);
    }
}

/// As far as everybody may.
fn raise(resource: Resource) {
    let maximum = getrlimit(resource).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(resource, raised);
}

fn reset_scheduling() {
    // SAFETY: plain numbers and structures that live through the calls; 0 means this process.
    unsafe {
        let ordinary: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
        // All processors that the control group allows.
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        for processor in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(processor, &mut all);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const all);
    }
}

/// The group's limits are the starter's, and a supervisor kills all that is in it when the starter
/// ends. Root's service moves to the top of the hierarchy, where it is in no group of others.
fn leave_control_group() {
    const TOP: &str = "/sys/fs/cgroup";
    if geteuid().is_root() && statfs(TOP).is_ok_and(|found| found.f_type == CGROUP2_MAGIC) {
        write(&format!("{TOP}/cgroup.procs"), b"0");
    }
}

fn write(path: &str, data: &[u8]) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = openat(CWD, path, flags, Mode::empty()) {
        let _ = rustix::io::write(&file, data);
    }
}
