//! Attributes that are told again after reading, before anyone asks for them.

#![cfg(test)]

mod support;

use std::fs::{self, File, Permissions};
use std::hint::spin_loop;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, Mode, StatxFlags, XattrFlags};
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
    let Some(mounted) = store::mount() else {
        return;
    };
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
    assert_eq!(
        of(&remembered),
        of(&real),
        "of {} after {after}",
        path.display()
    );
}

/// The session's child process is slowed down, so that what it was told reaches the
/// kernel's memory long after it was said.
#[test]
fn what_was_told_before_a_change_is_not_remembered_after_it() {
    let Some(mounted) = store::mount() else {
        return;
    };
    let base = mounted.base.join("directory");
    fs::create_dir(&base).unwrap();
    fs::write(base.join("file"), [1; 4096]).unwrap();
    fs::create_dir(mounted.base.join("listed")).unwrap();
    fs::write(mounted.base.join("listed/one"), "").unwrap();
    let (_transaction, view) = mounted.begin();
    let (directory, listed) = (view.join("directory"), view.join("listed"));
    let (file, moved) = (directory.join("file"), view.join("moved"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&over);
        for _ in 0..4 {
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
        let changes: [(&str, &dyn Fn()); 14] = [
            ("setxattr", &|| {
                rustix::fs::setxattr(&file, c"user.n", b"1", XattrFlags::empty()).unwrap();
            }),
            ("removexattr", &|| {
                rustix::fs::removexattr(&file, c"user.n").unwrap()
            }),
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
            ("chmod", &|| {
                let mode = fs::metadata(base.join("file")).unwrap().mode();
                fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            }),
            ("truncation", &|| options().set_len(4000).unwrap()),
            ("a second name elsewhere", &|| {
                fs::hard_link(&file, &moved).unwrap();
                fs::remove_file(&moved).unwrap();
            }),
            ("a move within a directory that was listed", &|| {
                fs::rename(listed.join("one"), listed.join("other")).unwrap();
            }),
            ("another move within it", &|| {
                fs::rename(listed.join("other"), listed.join("one")).unwrap();
            }),
            ("creation within it", &|| {
                rustix::fs::mkdir(listed.join("new"), Mode::RWXU).unwrap();
            }),
            ("removal within it", &|| {
                fs::remove_dir(listed.join("new")).unwrap()
            }),
            ("creation and removal", &|| {
                fs::write(directory.join("new"), "").unwrap();
                fs::remove_file(directory.join("new")).unwrap();
            }),
            ("moves", &|| {
                fs::rename(&directory, &moved).unwrap();
                fs::rename(&moved, &directory).unwrap();
            }),
        ];
        for delay in [0, 50, 200, 1_000, 3_000, 10_000] {
            for (name, change) in &changes {
                read(&file);
                fs::read_dir(&listed).unwrap().count();
                let before = mounted.requests_of(READDIRPLUS);
                while mounted.requests_of(READDIRPLUS) == before {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_micros(delay));
                change();
                // Nothing is asked meanwhile: the answer would be a newer one.
                std::thread::sleep(Duration::from_millis(50));
                assert_remembered_rightly(&file, name);
                assert_remembered_rightly(&directory, name);
                assert_remembered_rightly(&listed, name);
            }
        }
    });
}

/// Sets it, also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
