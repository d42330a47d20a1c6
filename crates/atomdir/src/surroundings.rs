//! The restrictions under which a service runs, compared with those of its clients.
//!
//! A process inherits limits, namespaces, seccomp filters and more from the one that started it. A
//! service leaves what it can leave (`process/starter_settings` of the service). What remains must not decide
//! how others are served. So each client that could start a service compares the two. If it is less
//! restricted itself, it has the service end, provided that nobody else uses it, and starts another
//! one. While somebody uses it, the client goes on: what is open can be looked at, committed and
//! aborted. A restriction that would harm new transactions has them refused, with the cause.

use crate::current::Current;
use crate::hosting::kernel_text;
use atomdir_protocol::{Failure, FailureKind, Surroundings};
use rustix::fs::stat;
use rustix::process::{Resource, geteuid, getrlimit};
use std::path::Path;

/// The kernel's number of the first user namespace, in which every user is mapped.
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// A service with fewer descriptors or threads could run out of them.
const OPEN_FILES_ENOUGH: u64 = 4096;
const PROCESSES_ENOUGH: u64 = 512;

/// Something that a service may not do, and its client may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restriction {
    what: String,
    /// Whether a transaction could fail for it.
    is_harmful: bool,
}

/// Those of this process.
pub fn own() -> Surroundings {
    // SAFETY: both operations take plain numbers, and return one.
    let (no_new_privileges, has_filter) = unsafe {
        (
            libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
            libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2,
        )
    };
    let status = kernel_text("/proc/self/status").unwrap_or_default();
    // SAFETY: as above.
    let niceness = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let limit = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    Surroundings {
        user_namespace: inode("/proc/self/ns/user"),
        mount_namespace: inode("/proc/self/ns/mnt"),
        no_new_privileges,
        // Kernels before 5.9 do not count them.
        seccomp_filters: match has_filter {
            true => number(&status, "Seccomp_filters:", 10).unwrap_or(1) as u32,
            false => 0,
        },
        capabilities: number(&status, "CapEff:", 16).unwrap_or(0),
        niceness,
        file_bytes_max: limit(Resource::Fsize),
        processor_seconds_max: limit(Resource::Cpu),
        address_space_bytes_max: limit(Resource::As),
        data_bytes_max: limit(Resource::Data),
        open_files_max: limit(Resource::Nofile),
        processes_max: limit(Resource::Nproc),
    }
}

/// The things that this process may do and the service, which runs as `user`, may not.
pub(crate) fn restrictions(
    service: &Surroundings,
    user: u32,
    own: &Surroundings,
) -> Vec<Restriction> {
    let mut found = Vec::new();
    let mut add = |is_harmful, what: &str| {
        let what = what.to_owned();
        found.push(Restriction { what, is_harmful });
    };
    let is_root = user == 0;
    let is_elsewhere = service.user_namespace != own.user_namespace;
    if is_elsewhere && own.user_namespace == FIRST_USER_NAMESPACE {
        add(true, "it is in a user namespace, where it lacks rights");
    } else if !is_elsewhere && is_inner(service, own, is_root) {
        add(
            false,
            "it is in a mount namespace of its own, and its views may not be visible elsewhere",
        );
    }
    if service.no_new_privileges && !own.no_new_privileges {
        add(
            !is_root,
            "it runs under no_new_privs, with which fusermount3 cannot mount views",
        );
    }
    if service.seccomp_filters > own.seccomp_filters {
        add(
            !is_root,
            "it runs under a seccomp filter, which forbids it system calls",
        );
    }
    let missing = own.capabilities & !service.capabilities;
    if is_root && geteuid().is_root() && !is_elsewhere && missing != 0 {
        add(false, "it lacks some of root's capabilities");
    }
    if service.niceness > own.niceness {
        add(false, "its processor time has a low priority (nice)");
    }
    for (ours, its, enough, what) in limits(own, service) {
        if its < ours && its < enough {
            add(true, &what);
        }
    }
    found
}

/// Whether the service's mount namespace is a sandbox's, as far as this process can tell. A service
/// of root's is in the namespace of the first process, if it could enter that.
fn is_inner(service: &Surroundings, own: &Surroundings, is_root: bool) -> bool {
    // A program in a view is in an inner namespace itself.
    if service.mount_namespace == own.mount_namespace || Current::from_environment().is_some() {
        return false;
    }
    // 0: this process may not look at the first one.
    let first = inode("/proc/1/ns/mnt");
    let is_first = |one: &Surroundings| one.mount_namespace == first;
    !is_root || first == 0 || (is_first(own) && !is_first(service))
}

/// Our limit, the service's, what is enough, and what the service's limit means.
fn limits(own: &Surroundings, service: &Surroundings) -> [(u64, u64, u64, String); 6] {
    let of = |field: fn(&Surroundings) -> u64, enough, before: &str, after: &str| {
        let limit = field(service);
        (
            field(own),
            limit,
            enough,
            format!("{before} {limit} {after}"),
        )
    };
    let none = u64::MAX;
    [
        of(
            |one| one.file_bytes_max,
            none,
            "it can write no file longer than",
            "bytes (ulimit -f)",
        ),
        of(
            |one| one.processor_seconds_max,
            none,
            "it is killed after",
            "seconds of processor time (ulimit -t)",
        ),
        of(
            |one| one.address_space_bytes_max,
            none,
            "it may map at most",
            "bytes of memory (ulimit -v)",
        ),
        of(
            |one| one.data_bytes_max,
            none,
            "it may have at most",
            "bytes of data in memory (ulimit -d)",
        ),
        of(
            |one| one.open_files_max,
            OPEN_FILES_ENOUGH,
            "it can open at most",
            "files (ulimit -n)",
        ),
        of(
            |one| one.processes_max,
            PROCESSES_ENOUGH,
            "its user may have at most",
            "processes (ulimit -u)",
        ),
    ]
}

/// Why new transactions are refused, if they are.
pub(crate) fn refusal(store: &Path, restrictions: &[Restriction]) -> Option<Failure> {
    if !restrictions.iter().any(|one| one.is_harmful) {
        return None;
    }
    let message = format!(
        "the service of '{}' was started by a restricted process and cannot serve this one: {}",
        store.display(),
        causes(restrictions)
    );
    Some(Failure::new(FailureKind::InUse, message).with_hint(cure(store)))
}

/// Adds the restrictions of the service to a failure that they may have caused.
pub(crate) fn explain(store: &Path, restrictions: &[Restriction], mut failure: Failure) -> Failure {
    let may_be_caused = match failure.kind {
        FailureKind::NoViews => !restrictions.is_empty(),
        FailureKind::Io => restrictions.iter().any(|one| one.is_harmful),
        _ => false,
    };
    if may_be_caused {
        failure.message = format!(
            "{}; its service was started by a restricted process: {}",
            failure.message,
            causes(restrictions)
        );
        failure.hint = Some(cure(store));
    }
    failure
}

fn causes(restrictions: &[Restriction]) -> String {
    let causes: Vec<&str> = restrictions.iter().map(|one| &*one.what).collect();
    causes.join("; ")
}

fn cure(store: &Path) -> String {
    format!(
        "others use it now: when their transactions have ended (`atomdir -C {0} list`), the next \
         command starts another service; `atomdir -C {0} service stop --keep` ends it sooner and \
         keeps what survives",
        store.display()
    )
}

fn inode(path: &str) -> u64 {
    stat(path).map_or(0, |stat| stat.st_ino)
}

fn number(status: &str, name: &str, radix: u32) -> Option<u64> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harmful(service: &Surroundings, user: u32, own: &Surroundings) -> Option<bool> {
        let found = restrictions(service, user, own);
        (!found.is_empty()).then(|| found.iter().any(|one| one.is_harmful))
    }

    #[test]
    fn a_service_is_measured_by_what_its_client_may_do() {
        let own = Surroundings {
            user_namespace: FIRST_USER_NAMESPACE,
            mount_namespace: 7,
            ..own()
        };
        let with = |change: fn(&mut Surroundings)| {
            let mut service = own.clone();
            change(&mut service);
            service
        };
        assert_eq!(harmful(&own, 1000, &own), None);
        let short = with(|one| one.file_bytes_max = 51200);
        assert_eq!(harmful(&short, 1000, &own), Some(true));
        // Both are restricted alike, or the client more.
        assert_eq!(harmful(&short, 1000, &short), None);
        assert_eq!(harmful(&own, 1000, &short), None);
        let sandboxed = with(|one| one.no_new_privileges = true);
        assert_eq!(harmful(&sandboxed, 1000, &own), Some(true));
        assert_eq!(harmful(&sandboxed, 0, &own), Some(false));
        let nice = with(|one| one.niceness += 1);
        assert_eq!(harmful(&nice, 1000, &own), Some(false));
        let elsewhere = with(|one| one.mount_namespace = 8);
        assert_eq!(harmful(&elsewhere, 1000, &own), Some(false));
        let inner = with(|one| one.user_namespace = 8);
        assert_eq!(harmful(&inner, 1000, &own), Some(true));
        // From within a user namespace no better service can be started.
        assert_eq!(harmful(&own, 1000, &inner), None);
    }
}
