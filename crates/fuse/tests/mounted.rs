//! A real mount, used through the kernel by ordinary calls.

mod support;

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use support::Mounted;

#[test]
fn files_names_and_attributes() {
    let Some(mounted) = support::mount() else { return };
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
    assert_eq!(fs::metadata(at("second")).unwrap().modified().unwrap(), time);

    fs::remove_file(at("second")).unwrap();
    assert_eq!(second.metadata().unwrap().len(), 5, "unlinked but open");
    second.write_at(b"x", 5).unwrap();
    assert!(fs::metadata(at("second")).is_err());
    let error = fs::write(at(&"n".repeat(256)), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    fs::write(at(&"n".repeat(255)), "").unwrap();
}

#[test]
fn nodes_are_forgotten() {
    let Some(mounted) = support::mount() else { return };
    for number in 0..200 {
        fs::write(mounted.join(&number.to_string()), "x").unwrap();
    }
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 200);
    for number in 0..200 {
        fs::remove_file(mounted.join(&number.to_string())).unwrap();
    }
    // Forgetting is lazy; a few requests later it has been told.
    while mounted.filesystem.nodes_count() > 1 {
        fs::metadata(mounted.join("surely not there")).unwrap_err();
    }
}

#[test]
fn mapped_writes_arrive() {
    let Some(mounted) = support::mount() else { return };
    let path = mounted.join("mapped");
    fs::write(&path, vec![b'.'; 8192]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: a fresh mapping that nothing else knows; freed below.
    let bytes = unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        let at = rustix::mm::mmap(at, 8192, flags, MapFlags::SHARED, &file, 0).unwrap();
        std::slice::from_raw_parts_mut(at.cast::<u8>(), 8192)
    };
    bytes[0] = b'a';
    // SAFETY: the mapping's own range.
    unsafe {
        rustix::mm::msync(bytes.as_mut_ptr().cast(), 4096, MsyncFlags::SYNC).unwrap();
    }
    assert_eq!(mounted.filesystem.contents("mapped")[0], b'a', "msync");
    bytes[1] = b'b';
    file.sync_data().unwrap();
    assert_eq!(mounted.filesystem.contents("mapped")[1], b'b', "fdatasync after ENOSYS");
    bytes[2] = b'c';
    drop(file);
    assert_eq!(mounted.filesystem.contents("mapped")[2], b'c', "close");
    bytes[4096] = b'd';
    // SAFETY: nothing uses the mapping afterwards.
    unsafe { rustix::mm::munmap(bytes.as_mut_ptr().cast(), 8192).unwrap() };
    assert_eq!(mounted.filesystem.contents("mapped")[4096], b'd', "munmap");
}

#[test]
fn syncing_the_file_system_writes_mapped_pages() {
    let Some(mounted) = support::mount() else { return };
    let path = mounted.join("mapped");
    let length = 400 * 4096;
    fs::write(&path, vec![b'.'; length]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // SAFETY: a fresh mapping that nothing else knows, left to the process's end.
    let bytes = unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        let at = rustix::mm::mmap(at, length, flags, MapFlags::SHARED, &file, 0).unwrap();
        std::slice::from_raw_parts_mut(at.cast::<u8>(), length)
    };
    for page in (0..400).step_by(2) {
        bytes[page * 4096] = b'x';
    }
    rustix::fs::syncfs(File::open(&mounted.path).unwrap()).unwrap();
    let contents = mounted.filesystem.contents("mapped");
    println!("at once {}", contents.iter().filter(|byte| **byte == b'x').count());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let contents = mounted.filesystem.contents("mapped");
    println!("later {}", contents.iter().filter(|byte| **byte == b'x').count());
    for page in (0..400).step_by(2) {
        bytes[page * 4096] = b'y';
    }
    unsafe { rustix::mm::munmap(bytes.as_mut_ptr().cast(), length).unwrap() };
    let contents = mounted.filesystem.contents("mapped");
    println!("munmap {}", contents.iter().filter(|byte| **byte == b'y').count());
    let root = File::open(&mounted.path).unwrap();
    let begin = std::time::Instant::now();
    for _ in 0..1 { rustix::fs::syncfs(&root).unwrap(); }
    println!("syncfs {:?}", begin.elapsed() / 1000);
}

#[test]
fn unnamed_files_get_names() {
    let Some(mounted) = support::mount() else { return };
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
    let Some(mounted) = support::mount() else { return };
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

fn fill(directory: &Path, count: u32) {
    fs::create_dir(directory).unwrap();
    for number in 0..count {
        fs::write(directory.join(format!("entry {number}")), "").unwrap();
    }
}

#[test]
fn large_directories_are_read_while_they_change() {
    let Some(mounted) = support::mount() else { return };
    let directory = mounted.join("d");
    fill(&directory, 10_000);
    let names: HashSet<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 10_000);

    // Reading goes on after half of what follows has gone, others have come,
    // and the kernel has dropped what it remembered.
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(&directory).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if number == 5_000 {
            for even in (0..10_000).step_by(2) {
                fs::remove_file(directory.join(format!("entry {even}"))).unwrap();
            }
            for new in 0..1_000 {
                fs::write(directory.join(format!("new {new}")), "").unwrap();
            }
        }
        seen.push(name);
    }
    let unique: HashSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "an entry was seen twice");
    for odd in (1..10_000).step_by(2) {
        assert!(unique.contains(&format!("entry {odd}")), "skipped");
    }

    assert!(Command::new("rm").arg("-rf").arg(&directory).status().unwrap().success());
    assert!(!directory.exists());
    fill(&directory, 3_000);
    let status = Command::new("find").arg(&directory).arg("-delete").status().unwrap();
    assert!(status.success());
    fill(&directory, 3_000);
    // Removing while reading, a getdents at a time.
    for entry in fs::read_dir(&directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
}

#[test]
fn a_directory_position_can_be_returned_to() {
    let Some(mounted) = support::mount() else { return };
    let directory = mounted.join("d");
    fill(&directory, 2_000);
    let open = || File::open(&directory).unwrap();
    let mut whole = Vec::new();
    let mut reader = rustix::fs::Dir::new(open()).unwrap();
    while let Some(entry) = reader.read() {
        let entry = entry.unwrap();
        whole.push((entry.file_name().to_owned(), entry.offset() as u64));
    }
    assert_eq!(whole.len(), 2_002);
    for place in [0, 1, 2, 700, 1_999] {
        for gone in 0..200 {
            // A different tenth each time, with the remembered place or without.
            let name = &whole[2 + (place + gone) % 2_000].0;
            let _ = fs::remove_file(directory.join(name.to_str().unwrap()));
        }
        let mut file = open();
        file.seek(SeekFrom::Start(whole[place].1)).unwrap();
        let mut reader = rustix::fs::Dir::new(file).unwrap();
        let exists = |name: &CString| directory.join(name.to_str().unwrap()).exists();
        let following = whole[place + 1..].iter().map(|(name, _)| name.clone());
        let expected: Vec<_> = following.filter(exists).collect();
        let mut rest = Vec::new();
        while let Some(entry) = reader.read() {
            rest.push(entry.unwrap().file_name().to_owned());
        }
        // The kernel may still know removed ones.
        rest.retain(exists);
        assert!(rest == expected, "after place {place}");
    }
}

#[test]
fn what_was_read_costs_no_requests() {
    let Some(mounted) = support::mount() else { return };
    let path = mounted.join("file");
    let cat = || assert!(Command::new("cat").arg(&path).output().unwrap().status.success());
    let first = mounted.requests_of(|| fs::write(&path, "contents").unwrap());
    println!("first create, write, close: {first:?}");
    let path2 = mounted.join("file2");
    println!("create, write, close: {:?}", mounted.requests_of(|| fs::write(&path2, "c").unwrap()));
    println!("first cat: {:?}", mounted.requests_of(cat));
    println!("second cat: {:?}", mounted.requests_of(cat));
    let third = mounted.requests_of(cat);
    println!("third cat: {third:?}");
    assert_eq!(third, [("lookup", 1)], "only the test's own");
    let list = || assert!(fs::read_dir(&mounted.path).unwrap().count() > 0);
    println!("first list: {:?}", mounted.requests_of(list));
    println!("second list: {:?}", mounted.requests_of(list));
    assert_eq!(mounted.requests_of(list), [("lookup", 1)], "only the test's own");
    let sync = || File::open(&path).unwrap().sync_all().unwrap();
    sync();
    assert_eq!(mounted.requests_of(sync), [("lookup", 1)], "only the test's own");
}

#[test]
fn the_kernel_is_told_of_changes() {
    let Some(mounted) = support::mount() else { return };
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
    notifier.invalidate_entry(atomdir_fuse::ROOT_NODE, b"f").unwrap();
    assert!(!mounted.join("f").exists());
    notifier.invalidate_entry(atomdir_fuse::ROOT_NODE, b"never known").unwrap();
    notifier.invalidate_inode(123_456, 0, 0).unwrap();
}

#[test]
fn two_mounts_and_busy_unmount() {
    let (Some(mut first), Some(second)) = (support::mount(), support::mount()) else { return };
    fs::write(first.join("f"), "one").unwrap();
    fs::write(second.join("f"), "two").unwrap();
    let mut open = File::open(first.join("f")).unwrap();
    first.unmount();
    assert!(fs::read_dir(&first.path).unwrap().next().is_none(), "the plain directory again");
    let mut text = String::new();
    let error = open.metadata().and_then(|_| open.read_to_string(&mut text));
    println!("an open file after unmount: {error:?}");
    assert_eq!(fs::read(second.join("f")).unwrap(), b"two");
}

#[test]
fn someone_else_unmounts() {
    let Some(mut mounted) = support::mount() else { return };
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("umount")
    } else {
        Command::new("fusermount3")
    };
    if command.get_program() == "fusermount3" {
        command.arg("-u");
    }
    assert!(command.arg(&mounted.path).status().unwrap().success());
    let session = mounted.session.take().unwrap();
    session.join();
}

#[test]
fn a_panic_ends_the_mount_and_hangs_nobody() {
    let Some(mounted) = support::mount() else { return };
    fs::write(mounted.join("f"), "x").unwrap();
    fs::metadata(mounted.join("panic")).unwrap_err();
    while !mounted.session().is_ended() {
        let _ = fs::metadata(mounted.join("surely not there"));
    }
    assert!(!mounted.join("f").exists(), "unmounted");
}

#[test]
fn as_an_ordinary_user() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: every test runs as an ordinary user already");
    }
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("fusermount3") || !has("setpriv") || !has("unshare") {
        return eprintln!("SKIPPED: no fusermount3 (apt install fuse3), setpriv or unshare");
    }
    // Where that user can reach it: the test program, a directory for mounts,
    // and a device open to all, as udev makes it.
    let directory = support::fresh_directory();
    let (program, temporary) = (directory.join("tests"), directory.join("tmp"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(NOBODY), Some(NOBODY)).unwrap();
    let device = directory.join("fuse");
    let kind = rustix::fs::FileType::CharacterDevice;
    let number = rustix::fs::makedev(10, 229);
    rustix::fs::mknodat(CWD, &device, kind, Mode::empty(), number).unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    let script = r#"mount --bind "$1" /dev/fuse && shift && exec setpriv \
        --reuid 65534 --regid 65534 --clear-groups -- "$@""#;
    let output = Command::new("unshare")
        .args(["--mount", "--", "sh", "-c", script, "sh"])
        .args([&device, &program])
        .args(["--nocapture", "--test-threads", "2"])
        .env("TMPDIR", &temporary)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn modes_follow_the_umask_and_special_files_work() {
    let Some(mounted) = support::mount() else { return };
    let path = mounted.join("f");
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path).unwrap();
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    let expected = 0o666 & !umask.bits();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected);
    let error = OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    let mut read_only = OpenOptions::new();
    let mut created = read_only.write(true).create(true).mode(0o400).open(mounted.join("r"));
    created.as_mut().unwrap().write_all(b"once").unwrap();
    let appended = |text: &str| {
        OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
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
        File::open(mounted.join("zero")).unwrap().read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
        check_set_id(&mounted);
    }
    let status = rustix::fs::statvfs(&mounted.path).unwrap();
    assert_eq!((status.f_blocks, status.f_bavail, status.f_namemax), (1000, 400, 255));
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
