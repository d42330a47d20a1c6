//! A real mount, used through the kernel by ordinary calls.

#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atomdir_fuse::Session;
use atomdir_testing::wait_until;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use support::Mounted;
use support::memory::Memory;

#[test]
fn files_names_and_attributes_are_served() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let at = |name: &str| mounted.join(name);
    let long = vec![7; 3 << 20];
    fs::write(at("long"), &long).unwrap();
    assert_eq!(fs::read(at("long")).unwrap(), long);
    assert_eq!(mounted.filesystem.contents("long"), long);

    fs::create_dir(at("d")).unwrap();
    fs::rename(at("long"), at("d/moved")).unwrap();
    fs::hard_link(at("d/moved"), at("second")).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    symlink("d/moved", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("d/moved"));
    assert_eq!(fs::metadata(at("link")).unwrap().len(), long.len() as u64);

    let exchange = RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(CWD, at("d"), CWD, at("link"), exchange).unwrap();
    assert!(fs::symlink_metadata(at("d")).unwrap().is_symlink());
    let keep = RenameFlags::NOREPLACE;
    let refused = rustix::fs::renameat_with(CWD, at("d"), CWD, at("second"), keep);
    assert_eq!(refused, Err(Errno::EXIST));
    let whiteout = RenameFlags::WHITEOUT;
    let refused = rustix::fs::renameat_with(CWD, at("d"), CWD, at("w"), whiteout);
    assert_eq!(refused, Err(Errno::INVAL));

    File::open(at("second")).unwrap().set_len(1).unwrap_err();
    let second = OpenOptions::new().write(true).open(at("second")).unwrap();
    second.set_len(5).unwrap();
    second.sync_all().unwrap();
    fs::set_permissions(at("second"), fs::Permissions::from_mode(0o640)).unwrap();
    let metadata = fs::metadata(at("second")).unwrap();
    assert_eq!((metadata.len(), metadata.mode()), (5, 0o100_640));
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    second.set_modified(time).unwrap();
    assert_eq!(
        fs::metadata(at("second")).unwrap().modified().unwrap(),
        time
    );

    fs::remove_file(at("second")).unwrap();
    assert_eq!(second.metadata().unwrap().len(), 5, "unlinked but open");
    second.write_at(b"x", 5).unwrap();
    assert!(fs::metadata(at("second")).is_err());
    let error = fs::write(at(&"n".repeat(256)), "").unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(Errno::NAMETOOLONG.raw_os_error())
    );
    fs::write(at(&"n".repeat(255)), "").unwrap();
}

#[test]
fn parallel_clients_leave_no_nodes_behind() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let work = |thread: usize| {
        let at = |number: usize| mounted.join(&format!("{thread} {number}"));
        for number in 0..200 {
            fs::write(at(number), at(number).as_os_str().as_encoded_bytes()).unwrap();
        }
        assert!(fs::read_dir(&mounted.path).unwrap().count() >= 200);
        for number in 0..200 {
            let expected = at(number).into_os_string().into_encoded_bytes();
            assert_eq!(fs::read(at(number)).unwrap(), expected);
            fs::rename(at(number), at(number + 200)).unwrap();
            fs::remove_file(at(number + 200)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        (0..6).for_each(|thread| {
            drop(scope.spawn({
                let work = &work;
                move || work(thread)
            }))
        });
    });
    // The kernel sends FORGET late; a few requests later it has arrived.
    wait_until("FORGET of each file", || {
        fs::metadata(mounted.join("surely not there")).unwrap_err();
        mounted.filesystem.nodes_count() == 1
    });
}

#[test]
fn mount_errors_name_the_cause() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let session_on = |path: &Path| {
        let session = Session::mount(Arc::new(Memory::new()), path, &support::options());
        session.map(|_| ()).unwrap_err().to_string()
    };
    let missing = mounted.path.with_extension("missing");
    let message = session_on(&missing);
    assert!(message.contains("No such file"), "{message}");
    assert!(message.contains(missing.to_str().unwrap()), "{message}");
    let root = Path::new("/");
    if !rustix::process::geteuid().is_root() {
        let message = session_on(root);
        assert!(message.contains("no write access"), "{message}");
    }
}

#[test]
fn killed_caller_does_not_disturb_others() {
    let Some(mounted) = support::mount() else {
        return;
    };
    mounted
        .filesystem
        .write_milliseconds
        .store(20, Ordering::Relaxed);
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=4096", "status=none"]);
    let path = mounted.join("f");
    let output = format!("of={}", path.display());
    let mut writer = command.arg(output).spawn().unwrap();
    wait_until("a write", || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 0)
    });
    writer.kill().unwrap();
    writer.wait().unwrap();
    let written = mounted.filesystem.contents("f");
    assert_eq!(fs::read(path).unwrap(), written);
}

#[test]
fn unnamed_files_get_names() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(&mounted.path, flags, Mode::RUSR | Mode::WUSR).unwrap();
    let mut file = File::from(file);
    file.write_all(b"unnamed").unwrap();
    rustix::fs::linkat(&file, "", CWD, mounted.join("named"), AtFlags::EMPTY_PATH).unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.join("named")).unwrap(), b"unnamed");
}

#[test]
fn extended_attributes() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("x");
    fs::write(&path, "").unwrap();
    let value = vec![3; 5000];
    rustix::fs::setxattr(&path, "user.long", &value, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.short", b"v", XattrFlags::empty()).unwrap();
    let get = |buffer: &mut [u8]| rustix::fs::getxattr(&path, "user.long", buffer);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.long"), Ok(5000));
    assert_eq!(get(&mut [0; 10]), Err(Errno::RANGE));
    let mut buffer = vec![0; 6000];
    assert_eq!(get(&mut buffer), Ok(5000));
    assert_eq!(buffer[..5000], value);
    let mut list = vec![0; 100];
    let length = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(list[..length], *b"user.long\0user.short\0");
    rustix::fs::removexattr(&path, "user.long").unwrap();
    assert_eq!(get(&mut []), Err(Errno::NODATA));
}

#[test]
fn repeated_reads_send_no_requests() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("file");
    let cat = || {
        assert!(
            Command::new("cat")
                .arg(&path)
                .output()
                .unwrap()
                .status
                .success()
        )
    };
    let first = mounted.requests_of(|| fs::write(&path, "contents").unwrap());
    println!("first create, write, close: {first:?}");
    let path2 = mounted.join("file2");
    println!(
        "create, write, close: {:?}",
        mounted.requests_of(|| fs::write(&path2, "c").unwrap())
    );
    println!("first cat: {:?}", mounted.requests_of(cat));
    println!("second cat: {:?}", mounted.requests_of(cat));
    let third = mounted.requests_of(cat);
    println!("third cat: {third:?}");
    assert_eq!(third, [("lookup", 1)], "only the lookup of the test itself");
    let list = || assert!(fs::read_dir(&mounted.path).unwrap().count() > 0);
    println!("first list: {:?}", mounted.requests_of(list));
    println!("second list: {:?}", mounted.requests_of(list));
    assert_eq!(
        mounted.requests_of(list),
        [("lookup", 1)],
        "only the lookup of the test itself"
    );
    let sync = || File::open(&path).unwrap().sync_all().unwrap();
    sync();
    let mut synced = mounted.requests_of(sync);
    synced.sort_unstable();
    // Every fsync must reach the file system: a transaction may survive its service.
    assert_eq!(synced, [("fsync", 1), ("lookup", 1)]);
}

#[test]
fn copy_file_range_sends_no_read_or_write_requests() {
    const LENGTH: usize = 9 << 20;
    let Some(mounted) = support::mount() else {
        return;
    };
    let contents: Vec<u8> = (0..LENGTH).map(|at| (at / 1000) as u8).collect();
    fs::write(mounted.join("from"), &contents).unwrap();
    let from = File::open(mounted.join("from")).unwrap();
    let to = File::create_new(mounted.join("to")).unwrap();
    to.write_all_at(b"before", 0).unwrap();
    let (mut source, mut target) = (5, 6);
    let requests = mounted.requests_of(|| {
        while rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), LENGTH)
            .unwrap()
            > 0
        {}
    });
    assert_eq!(
        fs::read(mounted.join("to")).unwrap(),
        [b"before", &contents[5..]].concat()
    );
    let count = |wanted| {
        let found = requests.iter().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, count)| *count)
    };
    assert_eq!((count("read"), count("write")), (0, 0), "{requests:?}");
    assert_eq!(count("copy_file_range"), 3, "{requests:?}");
}

#[test]
fn notifications_invalidate_the_kernels_caches() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let notifier = mounted.session().notifier();
    fs::write(mounted.join("f"), "old").unwrap();
    for _ in 0..2 {
        // The first read makes the kernel ask for the access time once more.
        assert_eq!(fs::read(mounted.join("f")).unwrap(), b"old");
    }
    let node = mounted.filesystem.replace("f", b"newer");
    assert_eq!(fs::read(mounted.join("f")).unwrap(), b"old", "cached");
    notifier.invalidate_inode(node, 0, 0).unwrap();
    assert_eq!(fs::read(mounted.join("f")).unwrap(), b"newer");
    mounted.filesystem.forget_name("f");
    assert!(mounted.join("f").exists(), "cached");
    notifier
        .invalidate_entry(atomdir_fuse::ROOT_NODE, b"f")
        .unwrap();
    assert!(!mounted.join("f").exists());
    notifier
        .invalidate_entry(atomdir_fuse::ROOT_NODE, b"never known")
        .unwrap();
    notifier.invalidate_inode(123_456, 0, 0).unwrap();
}

#[test]
fn busy_unmount_leaves_the_other_mount_usable() {
    let (Some(mut first), Some(second)) = (support::mount(), support::mount()) else {
        return;
    };
    fs::write(first.join("f"), "one").unwrap();
    fs::write(second.join("f"), "two").unwrap();
    let mut open = File::open(first.join("f")).unwrap();
    first.unmount();
    assert!(
        fs::read_dir(&first.path).unwrap().next().is_none(),
        "the directory below the mount is empty"
    );
    let mut text = String::new();
    let error = open.metadata().and_then(|_| open.read_to_string(&mut text));
    println!("an open file after unmount: {error:?}");
    assert_eq!(fs::read(second.join("f")).unwrap(), b"two");
}

#[test]
fn session_ends_after_a_foreign_unmount() {
    let Some(mut mounted) = support::mount() else {
        return;
    };
    // Unmount lazily, since another program on the machine may be using the mount.
    let words: &[&str] = if rustix::process::geteuid().is_root() {
        &["umount", "-l"]
    } else {
        &["fusermount3", "-uz"]
    };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(&mounted.path);
    assert!(command.status().unwrap().success());
    let session = mounted.session.take().unwrap();
    session.join();
}

#[test]
fn panic_ends_the_mount_without_hanging_callers() {
    let Some(mounted) = support::mount() else {
        return;
    };
    fs::write(mounted.join("f"), "x").unwrap();
    fs::metadata(mounted.join("panic")).unwrap_err();
    wait_until("the end of the session", || {
        let _ = fs::metadata(mounted.join("surely not there"));
        mounted.session().is_ended()
    });
    assert!(!mounted.join("f").exists(), "unmounted");
}

#[test]
fn modes_follow_the_umask_and_special_files_work() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("f");
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o666)
        .open(&path)
        .unwrap();
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    let expected = 0o666 & !umask.bits();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected);
    let error = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    let mut read_only = OpenOptions::new();
    let mut created = read_only
        .write(true)
        .create(true)
        .mode(0o400)
        .open(mounted.join("r"));
    created.as_mut().unwrap().write_all(b"once").unwrap();
    let appended = |text: &str| {
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    appended("one");
    appended("two");
    assert_eq!(fs::read(&path).unwrap(), b"onetwo");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, mounted.join("fifo"), fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(mounted.join("socket")).unwrap();
    std::os::unix::net::UnixStream::connect(mounted.join("socket")).unwrap();
    if rustix::process::geteuid().is_root() {
        let kind = rustix::fs::FileType::CharacterDevice;
        let zero = rustix::fs::makedev(1, 5);
        rustix::fs::mknodat(CWD, mounted.join("zero"), kind, Mode::RUSR, zero).unwrap();
        let mut bytes = [1; 4];
        File::open(mounted.join("zero"))
            .unwrap()
            .read_exact(&mut bytes)
            .unwrap();
        assert_eq!(bytes, [0; 4]);
        check_set_id(&mounted);
    }
    let status = rustix::fs::statvfs(&mounted.path).unwrap();
    assert_eq!(
        (status.f_blocks, status.f_bavail, status.f_namemax),
        (1000, 400, 255)
    );
}

/// A set-user-id program runs as its owner, as on any file system.
fn check_set_id(mounted: &Mounted) {
    let program = mounted.join("id");
    fs::write(&program, fs::read("/usr/bin/id").unwrap()).unwrap();
    std::os::unix::fs::chown(&program, Some(12345), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = Command::new(&program).arg("-u").output().unwrap();
    assert_eq!(output.stdout, b"12345\n");
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
