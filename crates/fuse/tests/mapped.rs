//! Writes through shared mappings.

#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atomdir_fuse::MountOptions;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

fn map(file: &File, length: usize) -> &'static mut [u8] {
    let (flags, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: a new mapping that nothing else uses.
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
    assert_eq!(mounted.filesystem.contents("mapped")[1], b'b', "fdatasync");
    bytes[2] = b'c';
    drop(file);
    assert_eq!(mounted.filesystem.contents("mapped")[2], b'c', "close");
    bytes[4096] = b'd';
    unmap(bytes);
    assert_eq!(mounted.filesystem.contents("mapped")[4096], b'd', "munmap");
}

#[test]
fn barrier_waits_for_mapped_writes() {
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
        mounted.session().run_barrier().unwrap();
        let contents = mounted.filesystem.contents("mapped");
        assert_eq!(contents.iter().filter(|byte| **byte == round).count(), 200);
    }
    mounted
        .filesystem
        .write_milliseconds
        .store(0, Ordering::Relaxed);
    println!(
        "barrier: {:?}",
        mounted.requests_of(|| mounted.session().run_barrier().unwrap())
    );
    let names: Vec<_> = fs::read_dir(&mounted.path).unwrap().collect();
    assert_eq!(names.len(), 1, "the session's own file must not be listed");
    unmap(bytes);
}

const FLUSHED_BARRIERS: usize = 5_000;

/// The kernel may write a page of the barrier's file at any moment, also before the barrier has
/// changed them all.
#[test]
fn barrier_returns_while_others_flush() {
    let classic = MountOptions {
        rings: false,
        ..support::options()
    };
    let Some(mounted) = support::mount_by(&classic) else {
        return;
    };
    let done = AtomicBool::new(false);
    let root = File::open(&mounted.path).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    rustix::fs::syncfs(&root).unwrap();
                }
            });
        }
        let all = (0..FLUSHED_BARRIERS).try_for_each(|_| mounted.session().run_barrier());
        done.store(true, Ordering::Relaxed);
        all.unwrap();
    });
}

const SPARSE: usize = 1 << 20;
const DATA_AT: u64 = 512 << 10;

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.truncate(false).open(path).unwrap()
}

/// Makes a file with one page of data; the rest is holes.
fn make_sparse(path: &Path) {
    let file = open(path);
    file.set_len(SPARSE as u64).unwrap();
    file.write_all_at(&[b'd'; 4096], DATA_AT).unwrap();
}

fn data_runs(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let mut runs = Vec::new();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return runs,
            start => start.unwrap(),
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        runs.push((start, at));
    }
}

/// The mapped writes have not reached the file system yet when another program looks for holes.
#[test]
fn writes_to_mapped_holes_are_copied() {
    let Some(mounted) = support::store::mount() else {
        return;
    };
    make_sparse(&mounted.base.join("old"));
    make_sparse(&mounted.base.join("changed"));
    let (transaction, view) = mounted.begin();
    make_sparse(&view.join("new"));
    open(&view.join("empty")).set_len(SPARSE as u64).unwrap();
    open(&view.join("changed")).write_all_at(b"c", 0).unwrap();
    for name in ["old", "new", "empty", "changed"] {
        let path = view.join(name);
        let mut expected = fs::read(mounted.base.join(name)).unwrap_or_default();
        expected.resize(SPARSE, 0);
        if name != "empty" {
            expected[DATA_AT as usize..][..4096].fill(b'd');
        }
        if name == "changed" {
            expected[0] = b'c';
        }
        let file = open(&path);
        let bytes = map(&file, SPARSE);
        drop(file);
        for at in [300_000, 700_001, SPARSE - 1] {
            bytes[at] = b'm';
            expected[at] = b'm';
        }
        let copy = mounted.place.with_file_name("copy");
        let mut command = Command::new("cp");
        let copied = command.arg("--sparse=auto").args([&path, &copy]).status();
        assert!(copied.unwrap().success());
        assert!(
            fs::read(&copy).unwrap() == expected,
            "{name}: the copy differs"
        );
        let runs = data_runs(&path);
        for at in [300_000, 700_001, SPARSE as u64 - 1] {
            let is_data = runs.iter().any(|(start, end)| (*start..*end).contains(&at));
            assert!(is_data, "{name}: {at} is not in {runs:?}");
        }
        unmap(bytes);
    }
    mounted.commit(&transaction);
    let landed = fs::read(mounted.base.join("old")).unwrap();
    assert_eq!(landed[300_000], b'm');
}

#[test]
fn unread_holes_stay_holes() {
    let Some(mounted) = support::store::mount() else {
        return;
    };
    let old = mounted.base.join("old");
    make_sparse(&old);
    let (transaction, view) = mounted.begin();
    let here = [(DATA_AT, DATA_AT + 4096)];
    assert_eq!(data_runs(&old), here, "the base's file system has holes");
    assert_eq!(data_runs(&view.join("old")), here);
    // Reading the data does not turn holes into data.
    let file = open(&view.join("old"));
    let mut page = [0; 4096];
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    file.read_exact_at(&mut page, DATA_AT).unwrap();
    assert_eq!(data_runs(&view.join("old")), here);
    file.write_all_at(b"x", DATA_AT - 4000).unwrap();
    assert_eq!(
        data_runs(&view.join("old")),
        [(DATA_AT - 4096, DATA_AT + 4096)]
    );
    file.set_len(DATA_AT + 100).unwrap();
    file.set_len(SPARSE as u64).unwrap();
    assert_eq!(
        data_runs(&view.join("old")),
        [(DATA_AT - 4096, DATA_AT + 4096)]
    );
    drop(file);
    mounted.commit(&transaction);
    assert_eq!(data_runs(&old), [(DATA_AT - 4096, DATA_AT + 4096)]);
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
