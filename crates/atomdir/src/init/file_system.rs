//! File systems whose files are the kernel's state. A call there fails in its own way or even has an
//! effect, so they are known by their type before anything is tried.

use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// By the type that statfs(2) reports.
const OF_KERNEL: [(FsWord, &str); 16] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x1cd1, "devpts"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c_u32 as FsWord, "selinuxfs"),
    (0x6265_6570, "configfs"),
    (0xcafe_4a11_u32 as FsWord, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4_u32 as FsWord, "efivarfs"),
    (0x1980_0202, "mqueue"),
    (0x6573_5543, "fusectl"),
    (0x4249_4e4d, "binfmt_misc"),
];

/// The name of the directory's file system, if it is one of these.
pub(super) fn of_kernel(directory: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let found = fstatfs(directory)?.f_type;
    let known = OF_KERNEL.iter().find(|(kind, _)| *kind == found);
    Ok(known.map(|(_, name)| *name))
}
