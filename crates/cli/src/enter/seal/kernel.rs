//! File systems through which programs see and change the kernel and other processes.
//!
//! Through a `/proc` that shows processes outside of the seal, a command reaches their
//! root directories, and so the base, and their memory. The other file systems have
//! files that root may write, and that make the kernel run programs outside of all
//! namespaces or change the machine.

use super::places::{Cover, cover_empty};
use super::{Errno, set_attributes};
use crate::enter::c_path;
use atomdir::client::mounts::Mount;
use rustix::mount::mount_bind_recursive;
use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

/// These are made read-only wherever they are mounted, with the mounts in them.
const SETTINGS: [&[u8]; 18] = [
    b"binder",
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"cpuset",
    b"debugfs",
    b"efivarfs",
    b"fusectl",
    b"nfsd",
    b"pstore",
    b"resctrl",
    b"securityfs",
    b"selinuxfs",
    b"smackfs",
    b"sysfs",
    b"tracefs",
];

/// Parts of `/proc` that belong to the machine and not to a process.
const SETTINGS_OF_PROC: [&CStr; 8] = [
    c"/proc/acpi",
    c"/proc/bus",
    c"/proc/fs",
    c"/proc/irq",
    c"/proc/mtrr",
    c"/proc/scsi",
    c"/proc/sys",
    c"/proc/sysrq-trigger",
];

/// Hides each `/proc` except the one at its usual place, which the command's own
/// replaces (`processes`).
pub(super) fn covers(mounts: &[Mount], base: &Path) -> io::Result<Vec<Cover>> {
    let of_processes = seen(mounts, base)
        .filter(|mount| mount.kind == b"proc" && !mount.point.starts_with("/proc"));
    of_processes
        .map(|mount| cover_empty(&mount.point))
        .collect()
}

/// The mount points of settings.
pub(super) fn settings(mounts: &[Mount], base: &Path) -> io::Result<Vec<CString>> {
    let of_settings = seen(mounts, base).filter(|mount| SETTINGS.contains(&&*mount.kind));
    let points = of_settings.map(|mount| Ok(c_path(&mount.point)?));
    points.collect()
}

/// The mounts that neither the view nor another mount at the same point hides.
fn seen<'a>(mounts: &'a [Mount], base: &'a Path) -> impl Iterator<Item = &'a Mount> {
    let numbered = mounts.iter().enumerate();
    let seen = numbered.filter(move |(number, mount)| {
        let is_covered = mounts[number + 1..]
            .iter()
            .any(|later| later.point == mount.point);
        let is_in_store = base != Path::new("/") && mount.point.starts_with(base);
        !is_covered && !is_in_store
    });
    seen.map(|(_, mount)| mount)
}

pub(super) fn protect(settings: &[CString]) -> Result<(), Errno> {
    settings.iter().try_for_each(|point| {
        match set_attributes(point, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY, 0) {
            // It was unmounted since, or is hidden by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => Ok(()),
            done => done,
        }
    })
}

/// Protects the `/proc` that the command will see.
pub(in crate::enter) fn protect_proc() -> Result<(), Errno> {
    SETTINGS_OF_PROC.iter().try_for_each(|part| {
        match mount_bind_recursive(*part, *part) {
            // Some machines lack it.
            Err(Errno::NOENT) => Ok(()),
            done => {
                done?;
                set_attributes(part, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY, 0)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mount_that_shows_the_kernel_is_found_where_it_is_seen() {
        let table = "\
27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 0:5 / /proc rw - proc proc rw
29 28 0:5 /sys /proc/sys ro - proc proc rw
30 27 0:6 / /sys rw - sysfs sysfs rw
31 27 0:5 / /jail/proc rw - proc proc rw
32 27 0:5 / /srv/site/proc rw - proc proc rw
33 27 0:6 / /hidden rw - sysfs sysfs rw
34 33 0:9 / /hidden rw - tmpfs tmpfs rw
35 27 0:7 / /groups rw - cgroup2 none rw
";
        let mounts = atomdir::client::mounts::parse(table.as_bytes());
        let at = |base| {
            let settings = settings(&mounts, Path::new(base)).expect("no zero in a path");
            (
                covers(&mounts, Path::new(base)).expect("likewise"),
                settings,
            )
        };
        let points = vec![c"/sys".to_owned(), c"/groups".to_owned()];
        let jail = Cover::Directory(c"/jail/proc".to_owned());
        assert_eq!(at("/srv/site"), (vec![jail], points.clone()));
        let (covers, settings) = at("/");
        assert_eq!((covers.len(), settings), (2, points));
    }
}
