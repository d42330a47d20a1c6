//! Handles, strings and arrays that C passes as pointers.

use crate::error::{Failure, Result};
use libc::c_char;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Borrows a handle.
///
/// # Safety
/// The pointer is null, or a handle that is not freed while the result is used.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid("the handle is NULL"))
}

/// Takes a handle back from C, so that dropping the result frees it. `None` for null.
///
/// # Safety
/// The pointer is null, or a handle that is not used any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: every handle comes from `give`.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Gives a handle to C.
///
/// # Safety
/// `slot` is not null, and points to a pointer that may be written.
pub(crate) unsafe fn give<T>(slot: *mut *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe { slot.write(Box::into_raw(Box::new(value))) }
}

pub(crate) fn require<T>(pointer: *const T) -> Result<()> {
    match pointer.is_null() {
        true => Err(Failure::invalid(
            "the handle, or the pointer for a result, is NULL",
        )),
        false => Ok(()),
    }
}

/// # Safety
/// The pointer is null or a string that lives as long as the result is used.
pub(crate) unsafe fn string<'a>(string: *const c_char) -> Result<Option<&'a CStr>> {
    // SAFETY: the caller's promise.
    Ok((!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }))
}

/// # Safety
/// As for `string`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a CStr> {
    // SAFETY: the caller's promise.
    let text = unsafe { string(pointer) }?;
    text.ok_or_else(|| Failure::invalid("a string is NULL"))
}

/// # Safety
/// As for `string`.
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    let path = unsafe { text(pointer) }?;
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Paths from C: an array that ends with null. Null itself means none.
///
/// # Safety
/// `paths` is null, or points to strings that live as long as the result is used, and to a null.
pub(crate) unsafe fn paths<'a>(paths: *const *const c_char) -> Result<Vec<&'a Path>> {
    let mut found = Vec::new();
    if paths.is_null() {
        return Ok(found);
    }
    // SAFETY: the caller's promise; the null ends the array.
    unsafe {
        while !(*paths.add(found.len())).is_null() {
            found.push(path(*paths.add(found.len()))?);
        }
    }
    Ok(found)
}

/// Data from C.
///
/// # Safety
/// `data` points to `size` bytes, which do not change while the result is used; or `size` is 0.
pub(crate) unsafe fn bytes<'a>(data: *const libc::c_void, size: usize) -> Result<&'a [u8]> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("the data is NULL")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// Copies a value to C as getxattr(2) does: with `size` 0, only its length is returned.
///
/// # Safety
/// `target` points to `size` bytes that may be written.
pub(crate) unsafe fn copy(value: &[u8], target: *mut libc::c_void, size: usize) -> Result<usize> {
    if size == 0 {
        return Ok(value.len());
    }
    require(target)?;
    if value.len() > size {
        let message = format!("the buffer has {size} bytes and needs {}", value.len());
        return Err(Failure::errno(libc::ERANGE, message));
    }
    // SAFETY: the caller's promise, and the value fits.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), target.cast(), value.len()) };
    Ok(value.len())
}
