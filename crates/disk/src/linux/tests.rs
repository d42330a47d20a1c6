//! The contract on real file systems, as root and as an ordinary user, with and
//! without openat2; and tests that need mounts.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Once;

use atomdir_testing::{Usage, Using, fresh_directory, quick_directory, skip, tools_present};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use super::{LinuxDisk, ahead, open::Opener};
use crate::contract::{self, Abilities};
use crate::{Access, Disk, Errno, Name, NewNode, Owner, RenameMode};

const ORDINARY_USER: u32 = 54_321;

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that is removed when the test ends.
struct Scratch {
    parent: OwnedFd,
    name: Name,
    path: PathBuf,
    directory: OwnedFd,
}

impl Scratch {
    fn new(parent: &Path, test: &str) -> Scratch {
        // With the strictest umask, modes must still be right.
        static UMASK: Once = Once::new();
        UMASK.call_once(|| _ = rustix::process::umask(Mode::from_raw_mode(0o077)));
        let disk = LinuxDisk::new();
        let path = fresh_directory(parent, &format!("disk-{test}"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let name = name(path.file_name().unwrap().to_str().unwrap());
        let parent = LinuxDisk::open_root(parent).unwrap();
        let directory = disk.open(&parent, &name, Access::Directory).unwrap();
        Scratch {
            parent,
            name,
            path,
            directory,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        contract::remove_tree(&LinuxDisk::new(), &self.parent, &self.name);
    }
}

fn without_openat2() -> LinuxDisk {
    LinuxDisk {
        opener: Opener { has_openat2: false },
    }
}

#[test]
fn keeps_the_contract_in_the_temporary_directory() {
    let scratch = Scratch::new(&std::env::temp_dir(), "temporary");
    let abilities = Abilities {
        privileged: is_root(),
        user_xattrs: true,
        large_directory_entries: 100_000,
    };
    contract::check(&LinuxDisk::new(), &scratch.directory, abilities);
}

#[test]
fn keeps_the_contract_on_tmpfs_without_openat2() {
    let scratch = Scratch::new(Path::new("/dev/shm"), "memory");
    // tmpfs has user attributes since Linux 6.6.
    let user_xattrs = LinuxDisk::new()
        .set_xattr(&scratch.directory, b"user.probe", b"")
        .is_ok();
    let abilities = Abilities {
        privileged: is_root(),
        user_xattrs,
        large_directory_entries: 1000,
    };
    contract::check(&without_openat2(), &scratch.directory, abilities);
}

#[test]
fn keeps_the_contract_while_charging_a_user() {
    if !is_root() {
        return; // only root can act at another's expense
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "expense");
    let disk = LinuxDisk::new();
    let owner_of = |file: &str| {
        disk.create(&scratch.directory, &name(file), 0o600).unwrap();
        let stat = disk.stat_at(&scratch.directory, &name(file)).unwrap();
        stat.attributes.owner.user
    };
    let before = rustix::thread::capabilities(None).unwrap();
    disk.set_mode(&scratch.directory, 0o700).unwrap();
    // The kernel has no user with this number.
    assert!(disk.charge(u32::MAX).is_err());
    let charge = disk.charge(ORDINARY_USER).unwrap();
    assert_eq!(owner_of("charged"), ORDINARY_USER);
    std::thread::scope(|scope| {
        let of_this_thread = scope.spawn(|| rustix::thread::capabilities(None).unwrap());
        // A new thread has the rights of the thread that started it.
        let rights = of_this_thread.join().unwrap();
        assert_eq!(rights, super::charge::bounded(before));
    });
    let abilities = Abilities {
        privileged: true,
        user_xattrs: true,
        large_directory_entries: 1000,
    };
    disk.unlink(&scratch.directory, &name("charged")).unwrap();
    contract::check(&disk, &scratch.directory, abilities);
    drop(charge);
    assert_eq!(owner_of("mine"), 0);
    assert_eq!(rustix::thread::capabilities(None).unwrap(), before);
}

#[test]
fn charge_gives_up_only_the_capability_to_exceed_quotas() {
    let all = CapabilitySets {
        effective: CapabilitySet::all(),
        permitted: CapabilitySet::all(),
        inheritable: CapabilitySet::empty(),
    };
    let bounded = super::charge::bounded(all);
    let given_up = all.effective.difference(bounded.effective);
    assert_eq!(given_up, CapabilitySet::SYS_RESOURCE);
    assert_eq!(bounded.permitted, all.permitted);
}

/// Mounts an ext4 of 16 MiB on `small`, in the mount namespace of this thread, with which it ends.
/// A fifth of its blocks is reserved for root. Reports the test as skipped if this is impossible.
fn mount_with_reserve(test: &str, scratch: &Scratch) -> Option<OwnedFd> {
    // SAFETY: changes only the mounts that this thread sees.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).unwrap();
    let make = "truncate -s 16M image; mkfs.ext4 -q -m 20 image; mkdir small
        mount -o loop image small || exit 3";
    let mut command = Command::new("/bin/sh");
    command
        .args(["-ec", make])
        .current_dir(&scratch.path)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    match command.status().unwrap().code() {
        Some(0) => Some(LinuxDisk::open_root(&scratch.path.join("small")).unwrap()),
        Some(3) => {
            skip(test, "no file can be mounted here");
            None
        }
        code => panic!("no file system is made: {code:?}"),
    }
}

/// Writes at the end of the file until that fails.
fn fill(disk: &LinuxDisk, file: &OwnedFd, piece: &[u8]) -> Errno {
    loop {
        let length = disk.stat(file).unwrap().length;
        if let Err(errno) = disk.write_at(file, piece, length) {
            return errno;
        }
    }
}

/// Root may take these blocks by its user id and by CAP_SYS_RESOURCE, which root lacks in some
/// containers. There the test shows the user id's part only.
#[test]
fn charged_writes_leave_the_blocks_reserved_for_root() {
    const TEST: &str = "charged_writes_leave_the_blocks_reserved_for_root";
    if !is_root() {
        return skip(TEST, "only root can act at another's expense");
    }
    if !tools_present(TEST, &["mkfs.ext4", "mount"]) {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "reserve");
    let in_thread = || {
        let Some(top) = mount_with_reserve(TEST, &scratch) else {
            return;
        };
        let disk = LinuxDisk::new();
        let space = || rustix::fs::fstatvfs(&top).unwrap();
        let reserved = space().f_bfree - space().f_bavail;
        assert!(reserved > 0);
        let roots = disk.create(&top, &name("roots"), 0o600).unwrap();

        let charge = disk.charge(ORDINARY_USER).unwrap();
        let users = disk.create(&top, &name("users"), 0o600).unwrap();
        for length in [1 << 18, 4096] {
            assert_eq!(fill(&disk, &users, &vec![1; length]), Errno::NOSPC);
        }
        // The file's owner does not matter.
        assert_eq!(disk.write_at(&roots, &[1; 4096], 0), Err(Errno::NOSPC));
        assert_eq!(disk.allocate(&roots, 0, 4096), Err(Errno::NOSPC));
        drop(charge);
        disk.sync_file_system(&top).unwrap();
        // The kernel may have taken a few blocks for its own structures.
        assert!(space().f_bfree > reserved * 9 / 10);

        let length = disk.stat(&users).unwrap().length;
        disk.write_at(&roots, &[1; 1 << 18], 0).unwrap();
        disk.write_at(&users, &[1; 1 << 18], length).unwrap();
        disk.sync_file_system(&top).unwrap();
        assert!(space().f_bfree < reserved, "nothing reserved was taken");
        let _charge = disk.charge(ORDINARY_USER).unwrap();
        assert_eq!(fill(&disk, &users, &[1; 4096]), Errno::NOSPC);
    };
    // The mount ends with the thread, also if it panics.
    std::thread::scope(|scope| scope.spawn(in_thread).join().unwrap());
}

#[test]
fn keeps_the_contract_for_an_ordinary_user() {
    if !is_root() {
        return; // the first test has tested that already
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "ordinary");
    let disk = LinuxDisk::new();
    let foreign = disk
        .create(&scratch.directory, &name("foreign"), 0o644)
        .unwrap();
    disk.make(&scratch.directory, &name("own"), &NewNode::Directory, 0o755)
        .unwrap();
    let own = disk
        .open(&scratch.directory, &name("own"), Access::Directory)
        .unwrap();
    let owner = Owner {
        user: ORDINARY_USER,
        group: ORDINARY_USER,
    };
    disk.set_owner(&own, owner).unwrap();
    // Credentials belong to a thread: the rest of the process stays root.
    let ordinary = || {
        let (user, group) = (Uid::from_raw(ORDINARY_USER), Gid::from_raw(ORDINARY_USER));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let abilities = Abilities {
            privileged: false,
            user_xattrs: true,
            large_directory_entries: 1000,
        };
        contract::check(&disk, &own, abilities);
        // In someone else's file NOATIME is refused, but reading is not.
        disk.open(&scratch.directory, &name("foreign"), Access::Read)
            .unwrap();
        assert!(!disk.may_access(&foreign, 2).unwrap());
        assert!(disk.may_access(&foreign, 4).unwrap());
        assert!(!disk.may_access(&scratch.directory, 2).unwrap());
        let refused = disk.create(&scratch.directory, &name("x"), 0o644);
        assert_eq!(refused.unwrap_err(), Errno::ACCESS);
    };
    std::thread::scope(|scope| scope.spawn(ordinary).join().unwrap());
}

#[test]
fn walk_never_enters_another_file_system() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new(&std::env::temp_dir(), "mounts");
    // The mounts belong to this thread and end with it.
    let mounted = || {
        // SAFETY: changes only the mounts that this thread sees.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", flags).unwrap();
        for disk in [LinuxDisk::new(), without_openat2()] {
            assert_stays_out(disk, &scratch);
        }
    };
    std::thread::scope(|scope| scope.spawn(mounted).join().unwrap());
}

fn assert_stays_out(disk: LinuxDisk, scratch: &Scratch) {
    // Opened by path, so that it is seen among this thread's mounts.
    let top = LinuxDisk::open_root(&scratch.path).unwrap();
    for below in ["other", "bound", "from"] {
        disk.make(&top, &name(below), &NewNode::Directory, 0o755)
            .unwrap();
    }
    disk.create(&top, &name("file"), 0o644).unwrap();
    let other = scratch.path.join("other");
    let none: Option<&std::ffi::CStr> = None;
    rustix::mount::mount("tmpfs", &other, "tmpfs", MountFlags::empty(), none).unwrap();
    // A bind mount of the same file system: the device number does not change.
    rustix::mount::mount_bind(scratch.path.join("from"), scratch.path.join("bound")).unwrap();
    rustix::mount::mount_bind("/dev/null", scratch.path.join("file")).unwrap();

    for mounted in ["other", "bound"] {
        for access in [Access::Path, Access::Directory, Access::Read] {
            assert_eq!(
                disk.open(&top, &name(mounted), access).unwrap_err(),
                Errno::XDEV
            );
        }
    }
    let file = disk.open(&top, &name("file"), Access::Path);
    assert_eq!(file.unwrap_err(), Errno::XDEV);
    let own = disk.stat(&top).unwrap().device;
    assert_ne!(disk.stat_at(&top, &name("other")).unwrap().device, own);

    let inside = LinuxDisk::open_root(&other).unwrap();
    disk.create(&inside, &name("a"), 0o644).unwrap();
    let (from, to) = (name("a"), name("b"));
    let linked = disk.link((&inside, &from), (&top, &to));
    assert_eq!(linked.unwrap_err(), Errno::XDEV);
    let renamed = disk.rename((&inside, &from), (&top, &to), RenameMode::Replace);
    assert_eq!(renamed.unwrap_err(), Errno::XDEV);
    assert_copies_between(disk, &top, &inside);

    for mounted in ["file", "bound", "other"] {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(scratch.path.join(mounted), flags).unwrap();
        contract::remove_tree(&disk, &top, &name(mounted));
    }
    contract::remove_tree(&disk, &top, &name("from"));
}

/// The kernel refuses this copy; the bytes must still arrive.
fn assert_copies_between(disk: LinuxDisk, from: &OwnedFd, to: &OwnedFd) {
    let contents: Vec<u8> = (0..1_000_000_u32)
        .map(|index| (index % 253) as u8)
        .collect();
    let source = disk.create(from, &name("source"), 0o644).unwrap();
    let target = disk.create(to, &name("target"), 0o644).unwrap();
    disk.write_at(&source, &contents, 0).unwrap();
    assert_eq!(
        disk.copy_range((&source, 1), (&target, 0), 2_000_000)
            .unwrap(),
        999_999
    );
    let mut copied = vec![0; contents.len()];
    assert_eq!(disk.read_at(&target, &mut copied, 0).unwrap(), 999_999);
    assert_eq!(copied[..999_999], contents[1..]);
    disk.unlink(from, &name("source")).unwrap();
}

#[test]
fn every_regular_file_is_found_and_no_access_time_changes() {
    let place = fresh_directory(&std::env::temp_dir(), "ahead");
    let deep = place.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(place.join("one"), "1").unwrap();
    std::fs::write(deep.join("two"), "2").unwrap();
    symlink("one", place.join("link")).unwrap();
    symlink("a", place.join("directory")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, place.join("fifo"), Mode::RUSR).unwrap();
    // Older than the modification time, so a listing would update it.
    let long_ago = std::process::Command::new("touch")
        .args(["-a", "-d", "@1000000000"])
        .args([&place, &deep])
        .status();
    assert!(long_ago.unwrap().success());

    let mut found = BTreeSet::new();
    let root = Rc::new(LinuxDisk::open_root(&place).unwrap());
    let looked = ahead::for_each_file(root.clone(), |file| {
        found.insert(file.as_bytes().to_vec());
        ControlFlow::Continue(())
    });
    assert!(looked.is_continue());
    assert!(ahead::for_each_file(root, |_| ControlFlow::Break(())).is_break());
    let accessed = [&place, &deep].map(|path| path.metadata().unwrap().atime());
    std::fs::remove_dir_all(&place).unwrap();
    assert_eq!(found, BTreeSet::from([b"one".to_vec(), b"two".to_vec()]));
    assert_eq!(accessed, [1_000_000_000; 2]);
}

/// POSIX locks belong to the process, and closing any descriptor of the file drops them. So the
/// question is asked before the descriptor is closed.
#[test]
fn users_of_a_file_are_found() {
    for parent in [std::env::temp_dir(), quick_directory()] {
        let scratch = Scratch::new(&parent, "users");
        let disk = LinuxDisk::new();
        let path = scratch.path.join("file");
        std::fs::write(&path, [1; 5000]).unwrap();
        let answers = || {
            let file = disk.open(&scratch.directory, &name("file"), Access::Read);
            let file = file.unwrap();
            let is_written = disk.is_open_for_writing(&file).unwrap();
            (is_written, disk.is_locked(&file).unwrap())
        };
        assert_eq!(answers(), (false, false));
        for usage in Usage::ALL {
            let using = Using::begin(usage, &path);
            let wanted = match usage {
                Usage::Append | Usage::Write | Usage::Mapped => (true, false),
                Usage::Flock | Usage::RecordLock => (false, true),
                Usage::Read => (false, false),
            };
            assert_eq!(answers(), wanted, "{usage:?}");
            drop(using);
            assert_eq!(answers(), (false, false), "{usage:?}, ended");
        }
        let locked = std::fs::File::open(&path).unwrap();
        let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::fcntl_lock(&locked, lock).unwrap();
        assert_eq!(answers(), (false, true), "a POSIX lock");
    }
}

#[test]
fn a_store_after_a_write_back_changes_the_files_times() {
    let test = "a_store_after_a_write_back_changes_the_files_times";
    let scratch = Scratch::new(&std::env::temp_dir(), "stores");
    let status = rustix::fs::fstatfs(&scratch.directory).unwrap();
    // Linux's `include/uapi/linux/magic.h`: TMPFS_MAGIC.
    if status.f_type == 0x0102_1994 {
        return skip(test, "the temporary directory is only in memory");
    }
    let path = scratch.path.join("file");
    std::fs::write(&path, [1; 5000]).unwrap();
    let disk = LinuxDisk::new();
    let using = Using::begin(Usage::Mapped, &path);
    using.store(b"one");
    let file = disk.open(&scratch.directory, &name("file"), Access::Read);
    let file = file.unwrap();
    let before = disk.stat(&file).unwrap().changed;
    disk.write_back(&file).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    using.store(b"two");
    assert_ne!(disk.stat(&file).unwrap().changed, before);
}
