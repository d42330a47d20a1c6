//! The SQL functions: `atomdir_begin()`, also with a label, `atomdir_join(NUMBER)`,
//! `atomdir_commit()`, `atomdir_abort()`; and, for plain files in the transaction,
//! `atomdir_read(PATH)`, `atomdir_write(PATH, CONTENTS)`, `atomdir_remove(PATH)`,
//! `atomdir_mkdir(PATH)`.

use crate::abi::{self, Context, Database, Function, Value};
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::outer::Outer;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::{ptr, slice};

enum Answer {
    Nothing,
    Number(u64),
    Contents(Vec<u8>),
}

const FUNCTIONS: [(&CStr, c_int, Function); 9] = [
    (c"atomdir_begin", 0, begin),
    (c"atomdir_begin", 1, begin),
    (c"atomdir_join", 1, join),
    (c"atomdir_commit", 0, commit),
    (c"atomdir_abort", 0, abort),
    (c"atomdir_read", 1, read),
    (c"atomdir_write", 2, write),
    (c"atomdir_remove", 1, remove),
    (c"atomdir_mkdir", 1, mkdir),
];

/// Adds the functions to a connection. SQLite calls it for each connection that it opens.
pub(crate) unsafe extern "C" fn install(
    database: *mut Database,
    _: *mut *mut c_char,
    _: *const c_void,
) -> c_int {
    let Some(api) = abi::api() else {
        return abi::ERROR;
    };
    for (name, arguments, function) in FUNCTIONS {
        // SAFETY: the connection is open, and the rest is constant.
        let done = unsafe {
            api.create_function_v2(
                database,
                name.as_ptr(),
                arguments,
                abi::UTF8 | abi::DIRECTONLY,
                ptr::null_mut(),
                Some(function),
                None,
                None,
                None,
            )
        };
        if done != abi::OK {
            return done;
        }
    }
    abi::OK
}

/// Runs a SQL function, and gives SQLite its result or error.
///
/// # Safety
/// `context` is what SQLite passes to a function.
unsafe fn answer(context: *mut Context, act: impl FnOnce(Arc<Connection>) -> Result<Answer>) {
    let Some(api) = abi::api() else {
        return;
    };
    // SAFETY: the caller's promise.
    unsafe {
        let address = api.context_db_handle(context).addr();
        let done = catch_unwind(AssertUnwindSafe(|| act(Connection::only_one_of(address)?)));
        let failed = || Failure::new(abi::ERROR, "internal error");
        match done.unwrap_or_else(|_| Err(failed())) {
            Ok(Answer::Nothing) => api.result_null(context),
            Ok(Answer::Number(number)) => api.result_int64(context, number.cast_signed()),
            Ok(Answer::Contents(contents)) => {
                let length = c_int::try_from(contents.len()).unwrap_or(c_int::MAX);
                let address = contents.as_ptr().cast::<c_void>();
                api.result_blob(context, address, length, abi::TRANSIENT);
            }
            Err(failure) => {
                let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
                api.result_error(context, message.as_ptr(), -1);
                api.result_error_code(context, failure.code);
            }
        }
    }
}

/// The bytes of an argument that is a text or a blob.
///
/// # Safety
/// SQLite has passed more than `at` arguments.
unsafe fn bytes<'a>(arguments: *mut *mut Value, at: usize) -> &'a [u8] {
    let Some(api) = abi::api() else {
        return &[];
    };
    // SAFETY: the caller's promise. SQLite keeps the bytes until the function returns.
    unsafe {
        let value = *arguments.add(at);
        let start = api.value_blob(value).cast::<u8>();
        let length = usize::try_from(api.value_bytes(value)).unwrap_or(0);
        match start.is_null() {
            true => &[],
            false => slice::from_raw_parts(start, length),
        }
    }
}

/// # Safety
/// As for `bytes`.
unsafe fn path<'a>(arguments: *mut *mut Value) -> &'a Path {
    // SAFETY: the caller's promise.
    Path::new(OsStr::from_bytes(unsafe { bytes(arguments, 0) }))
}

unsafe extern "C" fn begin(context: *mut Context, count: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with so many arguments.
    unsafe {
        let label = match count {
            0 => b"sqlite",
            _ => bytes(arguments, 0),
        };
        answer(context, |connection| {
            Ok(Answer::Number(connection.begin(label)?.number))
        })
    }
}

unsafe extern "C" fn join(context: *mut Context, _: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with one argument.
    let number = unsafe { abi::api().map_or(0, |api| api.value_int64(*arguments)) };
    let join = |connection: Arc<Connection>| {
        let outer = Outer::find(number.cast_unsigned()).ok_or_else(|| {
            Failure::new(abi::ERROR, format_args!("no transaction {number} is open"))
        })?;
        connection.join(outer)?;
        Ok(Answer::Nothing)
    };
    // SAFETY: as above.
    unsafe { answer(context, join) }
}

unsafe extern "C" fn commit(context: *mut Context, _: c_int, _: *mut *mut Value) {
    let commit = |connection: Arc<Connection>| connection.outer()?.commit();
    // SAFETY: SQLite calls it.
    unsafe {
        answer(context, |connection| {
            commit(connection).map(|()| Answer::Nothing)
        })
    }
}

unsafe extern "C" fn abort(context: *mut Context, _: c_int, _: *mut *mut Value) {
    let abort = |connection: Arc<Connection>| connection.outer()?.abort();
    // SAFETY: SQLite calls it.
    unsafe {
        answer(context, |connection| {
            abort(connection).map(|()| Answer::Nothing)
        })
    }
}

unsafe extern "C" fn read(context: *mut Context, _: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with one argument.
    let path = unsafe { path(arguments) };
    let read = |connection: Arc<Connection>| match connection.outer()?.transaction.read(path) {
        Ok(contents) => Ok(Answer::Contents(contents)),
        Err(error) if error.is_not_found() => Ok(Answer::Nothing),
        Err(error) => Err(Failure::of_file(abi::IOERR_READ, &error)),
    };
    // SAFETY: as above.
    unsafe { answer(context, read) }
}

unsafe extern "C" fn write(context: *mut Context, _: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with two arguments.
    let (path, contents) = unsafe { (path(arguments), bytes(arguments, 1)) };
    let write = |connection: Arc<Connection>| {
        let written = connection.outer()?.transaction.write(path, contents);
        written.map_err(|error| Failure::of_file(abi::IOERR_WRITE, &error))?;
        Ok(Answer::Nothing)
    };
    // SAFETY: as above.
    unsafe { answer(context, write) }
}

unsafe extern "C" fn remove(context: *mut Context, _: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with one argument.
    let path = unsafe { path(arguments) };
    let remove = |connection: Arc<Connection>| {
        let removed = connection.outer()?.transaction.remove_file(path);
        removed.map_err(|error| Failure::of_file(abi::IOERR_WRITE, &error))?;
        Ok(Answer::Nothing)
    };
    // SAFETY: as above.
    unsafe { answer(context, remove) }
}

/// Also makes the directories above it. One that is there is no error.
unsafe extern "C" fn mkdir(context: *mut Context, _: c_int, arguments: *mut *mut Value) {
    // SAFETY: SQLite calls it with one argument.
    let path = unsafe { path(arguments) };
    let mkdir = |connection: Arc<Connection>| {
        let made = connection.outer()?.transaction.create_dir_all(path);
        made.map_err(|error| Failure::of_file(abi::IOERR_WRITE, &error))?;
        Ok(Answer::Nothing)
    };
    // SAFETY: as above.
    unsafe { answer(context, mkdir) }
}
