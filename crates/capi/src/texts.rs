//! The versions of a text in conflict.

use crate::error::{Failure, count, status};
use crate::handle::{borrow, give, require, take};
use crate::transaction::Transaction;
use atomdir::ThreeWay;
use libc::{c_int, c_void, size_t};

const ANCESTOR: c_int = 1;
const MINE: c_int = 2;
const THEIRS: c_int = 3;
const MERGED: c_int = 4;

pub struct Texts {
    versions: ThreeWay,
    merged: Vec<u8>,
    is_merged: bool,
}

impl From<ThreeWay> for Texts {
    fn from(versions: ThreeWay) -> Texts {
        let (merged, is_merged) = match versions.merged() {
            Ok(merged) => (merged, true),
            Err(marked) => (marked, false),
        };
        Texts {
            versions,
            merged,
            is_merged,
        }
    }
}

/// # Safety
/// `tx` is a handle, and `texts` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_texts_open(
    tx: *mut Transaction,
    index: size_t,
    texts: *mut *mut Texts,
) -> c_int {
    status(|| {
        require(texts)?;
        // SAFETY: the caller's promise.
        let tx = &unsafe { borrow(tx) }?.tx;
        let listed = tx.listed_conflicts()?;
        let conflict = listed.get(index);
        let conflict = conflict
            .ok_or_else(|| Failure::invalid("the last list of conflicts has no such index"))?;
        let found = tx.texts_in_conflict(conflict)?;
        let found = found.map_err(|why| Failure::refused(format!("{conflict}; {why}")))?;
        // SAFETY: the caller's promise.
        unsafe { give(texts, Texts::from(found)) };
        Ok(())
    })
}

/// # Safety
/// `texts` is a handle, and `data` and `size` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_texts_get(
    texts: *const Texts,
    version: c_int,
    data: *mut *const c_void,
    size: *mut size_t,
) -> c_int {
    count(|| {
        require(data)?;
        require(size)?;
        // SAFETY: the caller's promise.
        let texts = unsafe { borrow(texts) }?;
        let (text, is_marked) = match version {
            ANCESTOR => (&texts.versions.ancestor, false),
            MINE => (&texts.versions.mine, false),
            THEIRS => (&texts.versions.theirs, false),
            MERGED => (&texts.merged, !texts.is_merged),
            _ => return Err(Failure::invalid("the version is unknown")),
        };
        // SAFETY: the caller's promise.
        unsafe {
            data.write(text.as_ptr().cast());
            size.write(text.len());
        }
        Ok(is_marked.into())
    }) as c_int
}

/// # Safety
/// `texts` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_texts_close(texts: *mut Texts) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(texts) });
        Ok(())
    });
}
