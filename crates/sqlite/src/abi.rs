//! The part of SQLite's C interface that the extension uses, as sqlite3.h and sqlite3ext.h
//! declare it. SQLite promises never to change these declarations, only to add at their ends.
//! A test compiles a C program that compares the positions with the installed header.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR: c_int = 1;
pub(crate) const PERM: c_int = 3;
pub(crate) const BUSY: c_int = 5;
pub(crate) const NOMEM: c_int = 7;
pub(crate) const READONLY: c_int = 8;
pub(crate) const IOERR: c_int = 10;
pub(crate) const NOTFOUND: c_int = 12;
pub(crate) const FULL: c_int = 13;
pub(crate) const CANTOPEN: c_int = 14;
pub(crate) const SCHEMA: c_int = 17;
pub(crate) const NOTICE: c_int = 27;
pub(crate) const BUSY_SNAPSHOT: c_int = BUSY | 2 << 8;
pub(crate) const IOERR_READ: c_int = IOERR | 1 << 8;
pub(crate) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub(crate) const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub(crate) const IOERR_FSYNC: c_int = IOERR | 4 << 8;
pub(crate) const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
pub(crate) const IOERR_FSTAT: c_int = IOERR | 7 << 8;
pub(crate) const IOERR_LOCK: c_int = IOERR | 15 << 8;
pub(crate) const IOERR_COMMIT_ATOMIC: c_int = IOERR | 30 << 8;
pub(crate) const OK_LOAD_PERMANENTLY: c_int = 1 << 8;

pub(crate) const OPEN_READONLY: c_int = 0x1;
pub(crate) const OPEN_READWRITE: c_int = 0x2;
pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_DELETEONCLOSE: c_int = 0x8;
pub(crate) const OPEN_EXCLUSIVE: c_int = 0x10;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(crate) const OPEN_TEMP_JOURNAL: c_int = 0x1000;
pub(crate) const OPEN_SUPER_JOURNAL: c_int = 0x4000;
pub(crate) const OPEN_WAL: c_int = 0x80000;

pub(crate) const LOCK_NONE: c_int = 0;
pub(crate) const LOCK_RESERVED: c_int = 2;

pub(crate) const FCNTL_LOCKSTATE: c_int = 1;
pub(crate) const FCNTL_VFSNAME: c_int = 12;
pub(crate) const FCNTL_PRAGMA: c_int = 14;
pub(crate) const FCNTL_SYNC: c_int = 21;
pub(crate) const FCNTL_COMMIT_PHASETWO: c_int = 22;
pub(crate) const FCNTL_PDB: c_int = 30;

pub(crate) const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

#[repr(C)]
pub(crate) struct File {
    pub(crate) methods: *const IoMethods,
}

pub(crate) type Method<T> = Option<unsafe extern "C" fn(*mut File, T) -> c_int>;

#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: Option<unsafe extern "C" fn(*mut File) -> c_int>,
    pub(crate) read: Option<unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) write: Option<unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int>,
    pub(crate) truncate: Method<i64>,
    pub(crate) sync: Method<c_int>,
    pub(crate) file_size: Method<*mut i64>,
    pub(crate) lock: Method<c_int>,
    pub(crate) unlock: Method<c_int>,
    pub(crate) check_reserved_lock: Method<*mut c_int>,
    pub(crate) file_control: Option<unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int>,
    pub(crate) sector_size: Option<unsafe extern "C" fn(*mut File) -> c_int>,
    pub(crate) device_characteristics: Option<unsafe extern "C" fn(*mut File) -> c_int>,
}

/// The address of a function that this crate hands on and never calls.
pub(crate) type Opaque = Option<unsafe extern "C" fn()>;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_size: c_int,
    pub(crate) path_length_max: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: Option<
        unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    >,
    pub(crate) delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub(crate) access:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    /// The methods from xFullPathname to xNextSystemCall, taken unchanged from the default file system.
    pub(crate) others: [Opaque; 13],
}

/// A connection of SQLite (`sqlite3`).
pub enum Database {}
pub(crate) enum Context {}
pub(crate) enum Value {}
pub(crate) enum Statement {}

pub(crate) type Function = unsafe extern "C" fn(*mut Context, c_int, *mut *mut Value);
pub(crate) type Entry =
    unsafe extern "C" fn(*mut Database, *mut *mut c_char, *const c_void) -> c_int;

pub(crate) const UTF8: c_int = 1;
/// The function cannot be used in triggers and views.
pub(crate) const DIRECTONLY: c_int = 0x80000;
/// Tells SQLite to copy the result.
pub(crate) const TRANSIENT: isize = -1;

/// `sqlite3_api_routines`: the addresses of SQLite's functions, in an order that never changes.
#[derive(Clone, Copy)]
pub(crate) struct Api(*const Opaque);

// SAFETY: SQLite's table is constant.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

static API: OnceLock<Api> = OnceLock::new();

/// # Safety
/// `table` is what SQLite passes to the entry point of an extension.
pub(crate) unsafe fn set_api(table: *const c_void) {
    API.get_or_init(|| Api(table.cast()));
}

/// `None` before SQLite has loaded the extension.
pub(crate) fn api() -> Option<Api> {
    API.get().copied()
}

macro_rules! routines {
    ($($position:literal $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        impl Api {
            $(
                /// # Safety
                /// The arguments are valid by the rules of sqlite3.h for this function.
                #[allow(clippy::too_many_arguments, reason = "SQLite's function has so many")]
                pub(crate) unsafe fn $name(self, $($argument: $type),*) $(-> $result)? {
                    type Routine = unsafe extern "C" fn($($type),*) $(-> $result)?;
                    // SAFETY: SQLite 3.40 and newer have a routine of this type there.
                    unsafe {
                        let routine = self.0.add($position).cast::<Routine>().read();
                        routine($($argument),*)
                    }
                }
            )*
        }
    };
}

routines! {
    22 column_count(statement: *mut Statement) -> c_int;
    78 result_blob(
        context: *mut Context,
        value: *const c_void,
        length: c_int,
        destroy: isize
    );
    80 result_error(context: *mut Context, message: *const c_char, length: c_int);
    83 result_int64(context: *mut Context, value: i64);
    84 result_null(context: *mut Context);
    102 value_blob(value: *mut Value) -> *const c_void;
    103 value_bytes(value: *mut Value) -> c_int;
    107 value_int64(value: *mut Value) -> i64;
    141 vfs_find(name: *const c_char) -> *mut Vfs;
    142 vfs_register(vfs: *mut Vfs, default: c_int) -> c_int;
    146 result_error_code(context: *mut Context, code: c_int);
    149 context_db_handle(context: *mut Context) -> *mut Database;
    152 next_stmt(database: *mut Database, after: *mut Statement) -> *mut Statement;
    162 create_function_v2(
        database: *mut Database,
        name: *const c_char,
        arguments: c_int,
        flags: c_int,
        data: *mut c_void,
        function: Option<Function>,
        step: Opaque,
        last: Opaque,
        destroy: Opaque
    ) -> c_int;
    184 stmt_busy(statement: *mut Statement) -> c_int;
    185 stmt_readonly(statement: *mut Statement) -> c_int;
    189 uri_parameter(name: *const c_char, parameter: *const c_char) -> *const c_char;
    192 auto_extension(entry: Option<Entry>) -> c_int;
}

/// SQLite's functions that take a format and any number of arguments. This crate passes one string.
impl Api {
    /// Copies the text into memory that SQLite frees.
    pub(crate) fn copy(self, text: &CStr) -> *mut c_char {
        type Routine = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;
        // SAFETY: `mprintf` is at this position and has this type.
        unsafe {
            let routine = self.0.add(69).cast::<Routine>().read();
            routine(c"%s".as_ptr(), text.as_ptr())
        }
    }

    /// Adds a line to SQLite's error log.
    pub(crate) fn log(self, code: c_int, text: &CStr) {
        type Routine = unsafe extern "C" fn(c_int, *const c_char, ...);
        // SAFETY: `log` is at this position and has this type.
        unsafe {
            let routine = self.0.add(167).cast::<Routine>().read();
            routine(code, c"%s".as_ptr(), text.as_ptr());
        }
    }
}
