//! The store's lock while another process has a copy of its descriptor, as a child has right after
//! a fork.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::support::{Scratch, create, open, open_with};
use atomdir_disk::LinuxDisk;
use atomdir_engine::StoreError;

/// A copy of the descriptor by which this process has the file open.
fn copy_of_descriptor(path: &Path) -> OwnedFd {
    let mut open = fs::read_dir("/proc/self/fd").expect("the process has a directory");
    let found = open.find_map(|entry| {
        let entry = entry.expect("the process's directory is listed").path();
        let is_it = fs::read_link(&entry).is_ok_and(|target| target == path);
        let number = entry.file_name()?.to_str()?.parse().ok()?;
        is_it.then_some(number)
    });
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process lives");
    let copy = pidfd_getfd(
        this,
        found.expect("the file is open"),
        PidfdGetfdFlags::empty(),
    );
    copy.expect("a process may copy its own descriptors")
}

#[test]
fn dropped_store_releases_its_lock_while_a_copy_of_its_descriptor_is_open() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let copy = copy_of_descriptor(&scratch.0.join(".atomdir/lock"));
    let second = open_with(LinuxDisk::new(), &scratch.0);
    assert!(matches!(second, Err(StoreError::Locked)));
    drop(store);
    drop(open(&scratch.0));
    drop(copy);
}
