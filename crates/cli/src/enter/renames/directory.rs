//! Moves what overlayfs refuses to move.
//!
//! A new directory can be renamed, and so can files that were copied up whole. So the new directory
//! is filled beside its later place, by renaming the old one's entries into it, and gets its
//! name last. If anything fails, the entries go back.

use super::caller::{Place, rename};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, RenameFlags, Stat, Timespec, Timestamps,
    XattrFlags, chmodat, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat,
    futimens, mkdirat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const PERMISSIONS: RawMode = 0o7777;
const OWNERS_RIGHTS: RawMode = 0o700;
const XATTR_LENGTH_MAX: usize = 65536;

/// Moves it after overlayfs has refused to rename it (`EXDEV`). Fails with that error if it cannot be moved
/// in this way either.
pub(super) fn move_by_parts(from: &Place, to: &Place, flags: RenameFlags) -> Result<(), Errno> {
    if flags == RenameFlags::EXCHANGE {
        return exchange(from, to);
    }
    if !RenameFlags::NOREPLACE.contains(flags) {
        return Err(Errno::XDEV);
    }
    let source = (from.parent.as_fd(), &*from.name);
    if kind(source)? != FileType::Directory {
        copy_up(source)?;
        return rename(from, to, flags);
    }
    refuse_filled(to)?;
    let beside = spare_name()?;
    let moved = move_directory(source, (to.parent.as_fd(), &beside));
    // The program gets the error of the rename that it called.
    moved.map_err(|_| Errno::XDEV)?;
    let last = renameat_with(&to.parent, &*beside, &to.parent, &*to.name, flags);
    last.inspect_err(|_| {
        // Somebody has made something in its place. It is new now, so overlayfs moves it back.
        let _ = renameat_with(
            &to.parent,
            &*beside,
            &from.parent,
            &*from.name,
            RenameFlags::NOREPLACE,
        );
    })
}

/// Exchanges two objects, of which overlayfs does not move at least one.
fn exchange(one: &Place, other: &Place) -> Result<(), Errno> {
    let spare = spare_name()?;
    let [one_parent, other_parent] = [one, other].map(|place| place.parent.as_fd());
    let one = (one_parent, &*one.name);
    let other = (other_parent, &*other.name);
    let spare = (one_parent, &*spare);
    let steps = [(one, spare), (other, one), (spare, other)];
    for (number, (from, to)) in steps.into_iter().enumerate() {
        if move_any(from, to).is_err() {
            // What was moved is new, so overlayfs moves it back.
            for (from, to) in steps[..number].iter().rev() {
                let _ = move_any(*to, *from);
            }
            return Err(Errno::XDEV);
        }
    }
    Ok(())
}

/// Moves an object to a name that is free.
fn move_any(from: (BorrowedFd<'_>, &CStr), to: (BorrowedFd<'_>, &CStr)) -> Result<(), Errno> {
    let renamed = renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE);
    match renamed {
        // A directory that its owner may not write cannot get another parent.
        Err(Errno::XDEV | Errno::ACCESS) if kind(from)? == FileType::Directory => {
            move_directory(from, to)
        }
        Err(Errno::XDEV) => {
            copy_up(from)?;
            renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE)
        }
        renamed => renamed,
    }
}

pub(super) fn is_directory(place: &Place) -> bool {
    kind((place.parent.as_fd(), &*place.name)) == Ok(FileType::Directory)
}

fn kind((above, name): (BorrowedFd<'_>, &CStr)) -> Result<FileType, Errno> {
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

/// Has overlayfs copy the contents of a file of which it has copied the attributes at most. Then
/// it need not remember where the contents are, for which a path can be too long.
fn copy_up((above, name): (BorrowedFd<'_>, &CStr)) -> Result<(), Errno> {
    if kind((above, name))? != FileType::RegularFile {
        return Err(Errno::XDEV);
    }
    let before = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(above, name, flags, Mode::empty())?;
    // Overlayfs has written the contents into the copy, which changed its times.
    futimens(&file, &times_of(&before))
}

/// A name beside the later one, which no other helper uses.
fn spare_name() -> Result<CString, Errno> {
    let name = format!(".atomdir-move-{}", std::process::id());
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// Fails if the name is that of a directory that is not empty.
fn refuse_filled(place: &Place) -> Result<(), Errno> {
    match open_directory(place.parent.as_fd(), &place.name) {
        Ok(directory) if !entries(&directory)?.is_empty() => Err(Errno::NOTEMPTY),
        // What else is wrong with it, the last rename finds.
        _ => Ok(()),
    }
}

/// Moves a directory to a name that is free.
fn move_directory(
    (above, name): (BorrowedFd<'_>, &CStr),
    to: (BorrowedFd<'_>, &CStr),
) -> Result<(), Errno> {
    let before = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = before.st_mode & PERMISSIONS;
    let is_closed = mode & OWNERS_RIGHTS != OWNERS_RIGHTS;
    if is_closed {
        chmodat(
            above,
            name,
            Mode::from_raw_mode(mode | OWNERS_RIGHTS),
            AtFlags::empty(),
        )?;
    }
    let moved = move_opened((above, name), to, &before);
    if moved.is_err() {
        if let Ok(old) = open_directory(above, name) {
            let _ = futimens(&old, &times_of(&before));
        }
        if is_closed {
            let _ = chmodat(above, name, Mode::from_raw_mode(mode), AtFlags::empty());
        }
    }
    moved
}

fn move_opened(
    (above, name): (BorrowedFd<'_>, &CStr),
    (to, new_name): (BorrowedFd<'_>, &CStr),
    before: &Stat,
) -> Result<(), Errno> {
    let old = open_directory(above, name)?;
    mkdirat(to, new_name, Mode::RWXU)?;
    let made = open_directory(to, new_name).and_then(|new| {
        let mut moved = Vec::new();
        let done = move_entries(&old, &new, &mut moved)
            .and_then(|()| dress(&old, &new, before))
            .and_then(|()| unlinkat(above, name, AtFlags::REMOVEDIR));
        if done.is_err() {
            let _ = fchmod(&new, Mode::RWXU);
            for entry in moved.iter().rev() {
                let _ = move_any((new.as_fd(), entry), (old.as_fd(), entry));
            }
        }
        done
    });
    if made.is_err() {
        let _ = unlinkat(to, new_name, AtFlags::REMOVEDIR);
    }
    made
}

fn move_entries(old: &OwnedFd, new: &OwnedFd, moved: &mut Vec<CString>) -> Result<(), Errno> {
    for entry in entries(old)? {
        move_any((old.as_fd(), &entry), (new.as_fd(), &entry))?;
        moved.push(entry);
    }
    Ok(())
}

/// Gives the new directory what the old one has.
fn dress(old: &OwnedFd, new: &OwnedFd, before: &Stat) -> Result<(), Errno> {
    let now = fstat(new)?;
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid) {
        let user = rustix::fs::Uid::from_raw(before.st_uid);
        fchown(
            new,
            Some(user),
            Some(rustix::fs::Gid::from_raw(before.st_gid)),
        )?;
    }
    let names = xattr_names(old)?;
    for inherited in xattr_names(new)? {
        // From the default ACL of the directory above.
        if !names.contains(&inherited) && !is_label(&inherited) {
            fremovexattr(new, &*inherited)?;
        }
    }
    let mut value = vec![0_u8; XATTR_LENGTH_MAX];
    for name in names.iter().filter(|name| !is_label(name)) {
        let length = fgetxattr(old, &**name, &mut value)?;
        fsetxattr(new, &**name, &value[..length], XattrFlags::empty())?;
    }
    fchmod(new, Mode::from_raw_mode(before.st_mode & PERMISSIONS))?;
    futimens(new, &times_of(before))
}

fn xattr_names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut list = vec![0_u8; XATTR_LENGTH_MAX];
    let length = match flistxattr(directory, &mut list) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    let names = list[..length].split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty()).map(CString::new);
    names.collect::<Result<_, _>>().map_err(|_| Errno::INVAL)
}

/// A security module gives each new object its label.
fn is_label(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.")
}

fn times_of(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime as _,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime as _,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    }
}

fn open_directory(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

fn entries(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}
