//! Everything a file has besides its contents: mode, owner, times, extended
//! attributes. What only root may do is left out for others.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use rustix::fs::{
    AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, getxattr,
    getxattr_query, lgetxattr, listxattr, lsetxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "attributes";

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn prepare() -> Outcome {
    for name in ["mode", "owner", "times", "extended", "written by another"] {
        fs::write(name, name)?;
    }
    fs::create_dir("directory")?;
    symlink("mode", "link")?;
    setxattr("extended", "user.old", b"old value", XattrFlags::empty())?;
    setxattr("extended", "user.removed", b"", XattrFlags::empty())?;
    setxattr(
        "directory",
        "user.of a directory",
        b"old",
        XattrFlags::empty(),
    )?;
    if is_root() {
        chown("written by another", Some(NOBODY), Some(NOBODY))?;
    }
    fs::set_permissions("written by another", Permissions::from_mode(0o6777))?;
    Ok(())
}

fn run() -> Outcome {
    modes()?;
    if is_root() {
        owners()?;
    }
    extended()?;
    inherited()?;
    times()
}

fn mode(path: &str) -> std::io::Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

fn modes() -> Outcome {
    for bits in [0, 0o7777, 0o1644, 0o4755, 0o2711] {
        fs::set_permissions("mode", Permissions::from_mode(bits))?;
        same("mode", mode("mode")?, bits)?;
    }
    fs::set_permissions("directory", Permissions::from_mode(0o3775))?;
    rustix::process::umask(Mode::from_raw_mode(0o027));
    File::create("masked")?;
    fs::create_dir("masked directory")?;
    same(
        "masked",
        (mode("masked")?, mode("masked directory")?),
        (0o640, 0o750),
    )?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

/// Set-id bits are cleared when a file changes its owner or when another user writes to it.
fn owners() -> Outcome {
    fs::set_permissions("owner", Permissions::from_mode(0o6755))?;
    chown("owner", Some(1234), None)?;
    same("after chown", mode("owner")?, 0o755)?;
    chown("owner", None, Some(4_000_000_000))?;
    let found = fs::metadata("owner")?;
    same("owner", (found.uid(), found.gid()), (1234, 4_000_000_000))?;
    process::call(NAME, "write as another user", &[])?;
    same("after a write", mode("written by another")?, 0o777)
}

fn extended() -> Outcome {
    let mut buffer = [0; 100];
    same("old", getxattr("extended", "user.old", &mut buffer)?, 9)?;
    refused(
        "made twice",
        setxattr("extended", "user.old", b"x", XattrFlags::CREATE),
        Errno::EXIST,
    )?;
    refused(
        "replaced",
        setxattr("extended", "user.new", b"x", XattrFlags::REPLACE),
        Errno::NODATA,
    )?;
    setxattr("extended", "user.old", b"new value", XattrFlags::REPLACE)?;
    setxattr("extended", "user.bytes", b"\0\xff\n", XattrFlags::CREATE)?;
    setxattr("extended", "user.large", &[7; 3000], XattrFlags::CREATE)?;
    if is_root() {
        setxattr(
            "extended",
            "trusted.for root",
            b"secret",
            XattrFlags::CREATE,
        )?;
    }
    removexattr("extended", "user.removed")?;
    refused(
        "removed",
        getxattr("extended", "user.removed", &mut buffer),
        Errno::NODATA,
    )?;
    refused(
        "removed twice",
        removexattr("extended", "user.removed"),
        Errno::NODATA,
    )?;
    refused(
        "too small a buffer",
        getxattr("extended", "user.large", &mut buffer),
        Errno::RANGE,
    )?;
    same(
        "its length",
        getxattr_query("extended", "user.large")?,
        3000,
    )?;
    let mut names = vec![0; 1000];
    let length = listxattr("extended", &mut names)?;
    let mut names: Vec<_> = names[..length]
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    names.sort();
    let expected = "user.bytes user.large user.old";
    let expected = match is_root() {
        true => format!("trusted.for root {expected}"),
        false => expected.to_owned(),
    };
    same("names", names.join(" ").trim(), expected.as_str())?;
    setxattr(
        "directory",
        "user.of a directory",
        b"new",
        XattrFlags::empty(),
    )?;
    removexattr("directory", "user.of a directory")?;
    setxattr("directory", "user.another", b"stays", XattrFlags::empty())?;
    // Only files and directories can have user.*; links can have trusted.*, too.
    refused(
        "user.* of a link",
        lsetxattr("link", "user.no", b"", XattrFlags::empty()),
        Errno::PERM,
    )?;
    if !is_root() {
        return Ok(());
    }
    lsetxattr("link", "trusted.of a link", b"its own", XattrFlags::empty())?;
    same(
        "of a link",
        lgetxattr("link", "trusted.of a link", &mut buffer)?,
        7,
    )
}

fn inherited() -> Outcome {
    let group = match is_root() {
        true => 50,
        false => rustix::process::getegid().as_raw(),
    };
    fs::create_dir("group")?;
    chown("group", None, Some(group))?;
    fs::set_permissions("group", Permissions::from_mode(0o2775))?;
    File::create("group/file")?;
    fs::create_dir("group/directory")?;
    same("group of a file", fs::metadata("group/file")?.gid(), group)?;
    let found = fs::metadata("group/directory")?.gid();
    same("of a directory", found, group)?;
    same("its mode", mode("group/directory")? & 0o2000, 0o2000)
}

/// Times to the nanosecond, before 1970 and after 2038, and each of the two times set alone.
fn times() -> Outcome {
    set_times(
        "times",
        (1_000_000_000, 123_456_789),
        (-1_000_000, 999_999_999),
    )?;
    set_times("times", (0, UTIME_OMIT), (5_000_000_000, 1))?;
    let found = fs::metadata("times")?;
    same(
        "modified",
        (found.mtime(), found.mtime_nsec()),
        (5_000_000_000, 1),
    )?;
    same(
        "accessed",
        (found.atime(), found.atime_nsec()),
        (1_000_000_000, 123_456_789),
    )?;
    set_times("link", (7, 8), (9, 10))?;
    same(
        "the link's own",
        fs::symlink_metadata("link")?.mtime_nsec(),
        10,
    )?;
    refused(
        "no such nanosecond",
        times_of("times", (0, 1_000_000_000), (0, 0)),
        Errno::INVAL,
    )?;

    // A change of attributes does not count as a change of contents; a write
    // does, and a time set after it stays.
    set_times("mode", (11, 12), (13, 14))?;
    fs::set_permissions("mode", Permissions::from_mode(0o600))?;
    same("after chmod", fs::metadata("mode")?.mtime_nsec(), 14)?;
    OpenOptions::new()
        .append(true)
        .open("mode")?
        .write_all(b" and more")?;
    same("after a write", fs::metadata("mode")?.mtime() > 13, true)?;
    set_times("mode", (15, 16), (17, 18))?;
    times_of("owner", (0, UTIME_NOW), (0, UTIME_NOW))?;
    same("now", fs::metadata("owner")?.mtime() > 1_700_000_000, true)?;

    // For the comparison every time is set, the directories' last.
    for path in [
        "owner",
        "extended",
        "masked",
        "written by another",
        "group/file",
        "group/directory",
        "group",
        "masked directory",
        "directory",
        ".",
    ] {
        set_times(path, (20, 21), (22, 23))?;
    }
    Ok(())
}

fn set_times(path: &str, accessed: (i64, i64), modified: (i64, i64)) -> Outcome {
    Ok(times_of(path, accessed, modified)?)
}

fn times_of(path: &str, accessed: (i64, i64), modified: (i64, i64)) -> Result<(), Errno> {
    let time = |(tv_sec, tv_nsec)| Timespec {
        tv_sec,
        tv_nsec: tv_nsec as _,
    };
    let times = Timestamps {
        last_access: time(accessed),
        last_modification: time(modified),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    if role != "write as another user" {
        return process::none(role, arguments);
    }
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid(1000), gid(1000), gid(1000))?;
    rustix::thread::set_thread_res_uid(uid(1000), uid(1000), uid(1000))?;
    OpenOptions::new()
        .append(true)
        .open("written by another")?
        .write_all(b" user")?;
    Ok(())
}

fn uid(number: u32) -> rustix::thread::Uid {
    rustix::thread::Uid::from_raw(number)
}

fn gid(number: u32) -> rustix::thread::Gid {
    rustix::thread::Gid::from_raw(number)
}
