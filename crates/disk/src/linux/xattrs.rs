//! Extended attributes of any kind of object, by any kind of handle.

use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::XattrFlags;
use rustix::io::retry_on_intr;

use super::attributes::by_path;
use super::open::path_of;
use crate::{Errno, Name, Result};

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

/// One call in place of four that open the object first.
pub(super) fn names_at(directory: &OwnedFd, name: &Name) -> Result<Vec<Vec<u8>>> {
    let path = [path_of(directory).as_bytes(), b"/", name.as_bytes()].concat();
    let list = read(|list| retry_on_intr(|| rustix::fs::llistxattr(&*path, spare_capacity(list))))?;
    Ok(split(&list))
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
