//! Extended attributes of any kind of object, by any kind of handle.

use std::ffi::CString;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::XattrFlags;
use rustix::io::retry_on_intr;

use super::attributes::by_path;
use crate::{Errno, Name, Result, types};

/// Long enough for most values and lists, so that few need a buffer of the greatest length.
const USUAL_LENGTH: usize = 256;
/// The kernel's limit of one value, and of a list of names.
const LENGTH_MAX: usize = 65536;

pub(super) fn get(object: &OwnedFd, name: &[u8]) -> Result<Vec<u8>> {
    read(|value| {
        by_handle(object, |path| match path {
            None => rustix::fs::fgetxattr(object, name, spare_capacity(value)),
            Some(path) => rustix::fs::getxattr(path, name, spare_capacity(value)),
        })
    })
}

pub(super) fn names(object: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    let list = read(|list| {
        by_handle(object, |path| match path {
            None => rustix::fs::flistxattr(object, spare_capacity(list)),
            Some(path) => rustix::fs::listxattr(path, spare_capacity(list)),
        })
    })?;
    Ok(split(&list))
}

/// listxattrat(2), which saves opening the object. It is as old as Linux 6.13, and neither libc nor
/// rustix has it yet.
pub(super) fn names_at(directory: &OwnedFd, name: &Name) -> Result<Vec<Vec<u8>>> {
    const LISTXATTRAT: libc::c_long = 465;
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    let list = read(|list| {
        let space = list.spare_capacity_mut();
        // SAFETY: the kernel reads the name up to its NUL, and writes at most the given length
        // into the buffer.
        let length = unsafe {
            libc::syscall(
                LISTXATTRAT,
                directory.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                space.as_mut_ptr(),
                space.len(),
            )
        };
        let length = length_or_error(length)?;
        // SAFETY: the kernel has written so many bytes.
        unsafe { list.set_len(length) };
        Ok(length)
    })?;
    Ok(split(&list))
}

/// All of an object that need not be open, by listxattrat(2) and then getxattrat(2) for each.
pub(super) fn all_at(directory: &OwnedFd, name: &Name) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = names_at(directory, name)?;
    types::with_values(names, |xattr| get_at(directory, name, xattr))
}

/// struct xattr_args of `linux/xattr.h`.
#[repr(C, align(8))]
struct XattrArguments {
    value: u64,
    size: u32,
    flags: u32,
}

/// getxattrat(2), as old as listxattrat(2).
fn get_at(directory: &OwnedFd, name: &Name, xattr: &[u8]) -> Result<Vec<u8>> {
    const GETXATTRAT: libc::c_long = 464;
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    let xattr = CString::new(xattr).map_err(|_| Errno::INVAL)?;
    read(|value| {
        let space = value.spare_capacity_mut();
        let mut arguments = XattrArguments {
            value: space.as_mut_ptr() as u64,
            size: space.len() as u32,
            flags: 0,
        };
        // SAFETY: the kernel reads both names up to their NUL and the arguments, and writes at most
        // the given length to where they point.
        let length = unsafe {
            libc::syscall(
                GETXATTRAT,
                directory.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                xattr.as_ptr(),
                &raw mut arguments,
                size_of::<XattrArguments>(),
            )
        };
        let length = length_or_error(length)?;
        // SAFETY: the kernel has written so many bytes.
        unsafe { value.set_len(length) };
        Ok(length)
    })
}

fn length_or_error(returned: libc::c_long) -> Result<usize> {
    usize::try_from(returned).map_err(|_| super::last_error())
}

fn split(list: &[u8]) -> Vec<Vec<u8>> {
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

pub(super) fn set(object: &OwnedFd, name: &[u8], value: &[u8]) -> Result<()> {
    let flags = XattrFlags::empty();
    by_handle(object, |path| match path {
        None => rustix::fs::fsetxattr(object, name, value, flags),
        Some(path) => rustix::fs::setxattr(path, name, value, flags),
    })
}

pub(super) fn remove(object: &OwnedFd, name: &[u8]) -> Result<()> {
    by_handle(object, |path| match path {
        None => rustix::fs::fremovexattr(object, name),
        Some(path) => rustix::fs::removexattr(path, name),
    })
}

/// Calls `call` without a path first, and then, if the handle was opened with
/// `Access::Path`, with the object's path.
fn by_handle<T>(object: &OwnedFd, mut call: impl FnMut(Option<&str>) -> Result<T>) -> Result<T> {
    match retry_on_intr(|| call(None)) {
        Err(Errno::BADF) => by_path(object, |path| call(Some(path))),
        result => result,
    }
}

fn read(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_LENGTH);
    match call(&mut bytes) {
        Err(Errno::RANGE) => {}
        result => return result.map(|_| bytes),
    }
    bytes = Vec::with_capacity(LENGTH_MAX);
    call(&mut bytes)?;
    bytes.shrink_to_fit();
    Ok(bytes)
}
