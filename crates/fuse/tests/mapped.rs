//! What programs write through shared mappings.

#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

fn map(file: &File, length: usize) -> &'static mut [u8] {
    let (flags, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: a fresh mapping that nothing else knows.
    unsafe {
        let start = rustix::mm::mmap(anywhere, length, flags, MapFlags::SHARED, file, 0).unwrap();
        std::slice::from_raw_parts_mut(start.cast::<u8>(), length)
    }
}

fn unmap(bytes: &'static mut [u8]) {
    // SAFETY: it came from `map`, and this was the only reference.
    unsafe { rustix::mm::munmap(bytes.as_mut_ptr().cast(), bytes.len()).unwrap() };
}

#[test]
fn mapped_writes_arrive() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("mapped");
    fs::write(&path, vec![b'.'; 8192]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let bytes = map(&file, 8192);
    bytes[0] = b'a';
    // SAFETY: the mapping's own range.
    unsafe {
        rustix::mm::msync(bytes.as_mut_ptr().cast(), 4096, MsyncFlags::SYNC).unwrap();
    }
    assert_eq!(mounted.filesystem.contents("mapped")[0], b'a', "msync");
    bytes[1] = b'b';
    file.sync_data().unwrap();
    assert_eq!(
        mounted.filesystem.contents("mapped")[1],
        b'b',
        "fdatasync after ENOSYS"
    );
    bytes[2] = b'c';
    drop(file);
    assert_eq!(mounted.filesystem.contents("mapped")[2], b'c', "close");
    bytes[4096] = b'd';
    unmap(bytes);
    assert_eq!(mounted.filesystem.contents("mapped")[4096], b'd', "munmap");
}

#[test]
fn settling_waits_for_mapped_writes() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("mapped");
    let length = 400 * 4096;
    fs::write(&path, vec![0; length]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let bytes = map(&file, length);
    drop(file);
    mounted
        .filesystem
        .write_milliseconds
        .store(2, Ordering::Relaxed);
    for round in 1..4 {
        for page in (0..400).step_by(2) {
            bytes[page * 4096] = round;
        }
        mounted.session().settle().unwrap();
        let contents = mounted.filesystem.contents("mapped");
        assert_eq!(contents.iter().filter(|byte| **byte == round).count(), 200);
    }
    mounted
        .filesystem
        .write_milliseconds
        .store(0, Ordering::Relaxed);
    println!(
        "settling: {:?}",
        mounted.requests_of(|| mounted.session().settle().unwrap())
    );
    let names: Vec<_> = fs::read_dir(&mounted.path).unwrap().collect();
    assert_eq!(names.len(), 1, "the session's own file is not to be seen");
    unmap(bytes);
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
