//! Attributes that are told again after reading, before anyone asks for them.

#![cfg(test)]

mod support;

use std::fs::{self, File};
use std::hint::spin_loop;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use rustix::process::Pid;
use rustix::thread::CpuSet;
use support::store::{self, Mounted};

const GETATTR: u32 = 3;
const READDIRPLUS: u32 = 44;

impl Mounted {
    fn requests_of(&self, opcode: u32) -> u64 {
        let counts = self.session().requests();
        let count = counts.iter().find(|(of, _)| *of == opcode);
        count.map_or(0, |(_, count)| *count)
    }
}

/// Asks the file system for the contents, whatever the kernel has of them.
fn read(path: &Path) {
    let mut file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).unwrap();
}

#[test]
fn files_that_were_read_need_not_be_asked_for() {
    let Some(mounted) = store::mount() else { return };
    let base = mounted.base.join("directory");
    fs::create_dir(&base).unwrap();
    for number in 0..100 {
        fs::write(base.join(number.to_string()), "read").unwrap();
    }
    let (_transaction, view) = mounted.begin();
    // What the child has been told may not have reached the kernel when the program
    // asks, so not every time.
    let is_told = |number: i32| {
        let name = number.to_string();
        let file = view.join("directory").join(&name);
        let before = mounted.requests_of(READDIRPLUS);
        read(&file);
        while mounted.requests_of(READDIRPLUS) == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(1));
        let before = mounted.requests_of(GETATTR);
        let told = fs::metadata(&file).unwrap();
        let real = fs::metadata(base.join(name)).unwrap();
        assert_eq!((told.ino(), told.len()), (real.ino(), real.len()));
        mounted.requests_of(GETATTR) == before
    };
    assert!((0..100).any(is_told));
}

/// What the kernel remembers of the object, and what it is when asked for.
fn assert_remembered_rightly(path: &Path, after: &str) {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let look = |how| rustix::fs::statx(CWD, path, flags | how, StatxFlags::BASIC_STATS).unwrap();
    let remembered = look(AtFlags::empty());
    let real = look(AtFlags::STATX_FORCE_SYNC);
    let of = |status: &rustix::fs::Statx| {
        let (modified, changed) = (status.stx_mtime, status.stx_ctime);
        let times = [modified, changed].map(|time| (time.tv_sec, time.tv_nsec));
        (status.stx_mode, status.stx_nlink, status.stx_size, times)
    };
    assert_eq!(of(&remembered), of(&real), "of {} after {after}", path.display());
}

/// The session's child process is slowed down, so that what it was told reaches the
/// kernel's memory long after it was said.
#[test]
fn what_was_told_before_a_change_is_not_remembered_after_it() {
    let Some(mounted) = store::mount() else { return };
    let base = mounted.base.join("directory");
    fs::create_dir(&base).unwrap();
    fs::write(base.join("file"), [1; 4096]).unwrap();
    let (_transaction, view) = mounted.begin();
    let directory = view.join("directory");
    let (file, moved) = (directory.join("file"), view.join("moved"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                bind(None);
                while !over.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        for child in child_processes() {
            bind(Some(child));
            rustix::process::setpriority_process(Some(child), 19).unwrap();
        }
        let options = || File::options().read(true).write(true).open(&file).unwrap();
        let changes: [(&str, &dyn Fn()); 7] = [
            ("setxattr", &|| {
                rustix::fs::setxattr(&file, c"user.n", b"1", XattrFlags::empty()).unwrap();
            }),
            ("removexattr", &|| rustix::fs::removexattr(&file, c"user.n").unwrap()),
            ("fallocate", &|| {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(options(), hole, 0, 4096).unwrap();
            }),
            ("store to mapped memory", &|| {
                let (flags, file) = (ProtFlags::READ | ProtFlags::WRITE, options());
                let anywhere = std::ptr::null_mut();
                // SAFETY: a fresh mapping that nothing else knows, and is unmapped once.
                unsafe {
                    let page = mmap(anywhere, 4096, flags, MapFlags::SHARED, &file, 0).unwrap();
                    page.cast::<u8>().write_volatile(7);
                    msync(page, 4096, MsyncFlags::SYNC).unwrap();
                    munmap(page, 4096).unwrap();
                }
            }),
            ("write", &|| options().write_all_at(b"changed", 0).unwrap()),
            ("creation and removal", &|| {
                fs::write(directory.join("other"), "").unwrap();
                fs::remove_file(directory.join("other")).unwrap();
            }),
            ("moves", &|| {
                fs::rename(&directory, &moved).unwrap();
                fs::rename(&moved, &directory).unwrap();
            }),
        ];
        let enough = mounted.requests_of(READDIRPLUS) + 60;
        while mounted.requests_of(READDIRPLUS) < enough {
            read(&file);
            for (name, change) in &changes {
                change();
                assert_remembered_rightly(&file, name);
                assert_remembered_rightly(&directory, name);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Only on the first processor.
fn bind(process: Option<Pid>) {
    let mut first = CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(process, &first).unwrap();
}

/// Of the sessions here: this process has no others.
fn child_processes() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
    let text: Vec<String> = lists.map(Result::unwrap).collect();
    let ids = text.iter().flat_map(|list| list.split_whitespace());
    ids.map(|id| Pid::from_raw(id.parse().unwrap()).unwrap())
        .collect()
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
