//! Requests over io_uring, or over the device if io_uring is not available.

#![cfg(test)]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Makes a system call whose second argument is at least `second_min` fail with EPERM,
/// as in a container, in this thread and those it starts later.
fn forbid(call: libc::c_long, second_min: u32) {
    const SECOND_ARGUMENT: u32 = 16 + 8;
    let (load, skip_unless_equal, skip_unless_least, answer) = (0x20, 0x15, 0x35, 0x06);
    let step = |code, skip, value| libc::sock_filter {
        code,
        jt: 0,
        jf: skip,
        k: value,
    };
    let mut steps = [
        step(load, 0, 0),
        step(skip_unless_equal, 3, call as u32),
        step(load, 0, SECOND_ARGUMENT),
        step(skip_unless_least, 1, second_min),
        step(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(answer, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is well formed, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program),
            0
        );
    }
}

/// For root only: the helper that mounts for an ordinary user fails under this filter.
#[test]
fn mount_works_without_io_uring() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Each ring first submits one operation, which polls its eventfd. Then it submits
    // several at once, which register its entries.
    for (call, second_min) in [
        (libc::SYS_io_uring_setup, 0),
        (libc::SYS_io_uring_enter, 0),
        (libc::SYS_io_uring_enter, 2),
    ] {
        let forbidden = thread::spawn(move || {
            forbid(call, second_min);
            let Some(mut mounted) = support::mount_by(&support::options()) else {
                return;
            };
            assert!(!mounted.session().has_rings());
            fs::write(mounted.join("f"), "served").unwrap();
            assert_eq!(fs::read(mounted.join("f")).unwrap(), b"served");
            mounted.session().run_barrier().unwrap();
            mounted.unmount();
        });
        forbidden.join().unwrap();
    }
}

fn work(directory: &Path, number: usize, is_over: &AtomicBool) {
    let path = directory.join(format!("file{number}"));
    let round = || -> std::io::Result<()> {
        let mut file = File::create(&path)?;
        file.write_all(&[1; 70_000])?;
        fs::read(&path)?;
        fs::read_dir(directory)?.count();
        fs::remove_file(&path)
    };
    while round().is_ok() && !is_over.load(Ordering::Relaxed) {}
}

#[test]
fn a_session_ends_under_load() {
    for _ in 0..5 {
        let Some(mut mounted) = support::mount() else {
            return;
        };
        let directory = mounted.path.clone();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for number in 0..8 {
                let (directory, is_over) = (&directory, &is_over);
                scope.spawn(move || work(directory, number, is_over));
            }
            for _ in 0..3 {
                mounted.session().run_barrier().unwrap();
            }
            mounted.unmount();
            is_over.store(true, Ordering::Relaxed);
        });
        // After the unmount the threads wrote to the directory below the mount.
        fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
