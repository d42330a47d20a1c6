//! SQLite's rollback journals. They serve the rollbacks of one transaction, and are discarded when
//! they are closed. A short one is in memory, a long one in a temporary file of SQLite's default
//! file system.

use crate::abi::{self, File, Vfs};
use crate::failure::{Failure, Result};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Longer journals move to a file.
const MEMORY_LENGTH_MAX: usize = 8 << 20;

/// SQLite's own file system accepts at most 131071 bytes in one write.
const WRITE_LENGTH_MAX: usize = 64 << 10;

pub(crate) enum Journal {
    Memory(Vec<u8>),
    File(TemporaryFile),
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal::Memory(Vec::new())
    }

    /// Returns the number of bytes read.
    pub(crate) fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Journal::Memory(contents) => {
                let rest = usize::try_from(offset).ok();
                let rest = rest.and_then(|offset| contents.get(offset..));
                let rest = rest.unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            Journal::File(file) => file.read(buffer, offset),
        }
    }

    pub(crate) fn write(&mut self, data: &[u8], offset: u64) -> Result<()> {
        if let Journal::Memory(contents) = self {
            let end = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = end.saturating_add(data.len());
            if end <= MEMORY_LENGTH_MAX {
                contents.resize(contents.len().max(end), 0);
                contents[end - data.len()..end].copy_from_slice(data);
                return Ok(());
            }
            let mut file = TemporaryFile::open()?;
            file.write(contents, 0)?;
            *self = Journal::File(file);
        }
        match self {
            Journal::File(file) => file.write(data, offset),
            Journal::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn truncate(&mut self, length: u64) -> Result<()> {
        match self {
            Journal::Memory(contents) => {
                contents.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                Ok(())
            }
            Journal::File(_) if length == 0 => {
                *self = Journal::new();
                Ok(())
            }
            Journal::File(file) => file.truncate(length),
        }
    }

    pub(crate) fn length(&self) -> Result<u64> {
        match self {
            Journal::Memory(contents) => Ok(contents.len() as u64),
            Journal::File(file) => file.length(),
        }
    }
}

/// A file without a name in SQLite's default file system.
pub(crate) struct TemporaryFile {
    /// SQLite's `sqlite3_file`, as long as its file system asks for. `u64` aligns it.
    object: Box<[u64]>,
    /// The last bytes written, which are not in the file yet. SQLite appends each page in three
    /// writes; this makes them one.
    tail: Vec<u8>,
    /// The offset of `tail` in the file.
    tail_at: u64,
}

// SAFETY: SQLite's files may be used by one thread after another.
unsafe impl Send for TemporaryFile {}

impl TemporaryFile {
    fn open() -> Result<TemporaryFile> {
        let failed = |code| {
            Failure::new(
                code,
                "cannot open a temporary file for the rollback journal",
            )
        };
        let vfs = beneath();
        // SAFETY: SQLite's file systems live as long as the process.
        let (open, size) = unsafe {
            let vfs = vfs.as_ref().ok_or_else(|| failed(abi::CANTOPEN))?;
            (
                vfs.open.ok_or_else(|| failed(abi::CANTOPEN))?,
                vfs.file_size,
            )
        };
        let words = usize::try_from(size).unwrap_or(0).div_ceil(8).max(1);
        let mut object = vec![0u64; words].into_boxed_slice();
        let flags = abi::OPEN_TEMP_JOURNAL
            | abi::OPEN_DELETEONCLOSE
            | abi::OPEN_EXCLUSIVE
            | abi::OPEN_READWRITE
            | abi::OPEN_CREATE;
        let mut out = 0;
        let file = object.as_mut_ptr().cast();
        // SAFETY: the object has the size that the file system asks for. No name means a
        // temporary file.
        match unsafe { open(vfs, ptr::null(), file, flags, &raw mut out) } {
            abi::OK => Ok(TemporaryFile {
                object,
                tail: Vec::new(),
                tail_at: 0,
            }),
            code => Err(failed(code)),
        }
    }

    fn file(&self) -> *mut File {
        self.object.as_ptr().cast_mut().cast()
    }

    fn methods(&self) -> &abi::IoMethods {
        // SAFETY: the file is open, so SQLite has set its methods, which are constant.
        unsafe { &*(*self.file()).methods }
    }

    fn call(&self, done: Option<c_int>, operation: &str) -> Result<()> {
        match done.unwrap_or(abi::IOERR) {
            abi::OK => Ok(()),
            code => Err(Failure::new(
                code,
                format_args!("cannot {operation} the temporary file of the rollback journal"),
            )),
        }
    }

    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.write_tail()?;
        let length = self.length()?.saturating_sub(offset);
        let count = buffer
            .len()
            .min(usize::try_from(length).unwrap_or(usize::MAX));
        let (address, amount) = (buffer.as_mut_ptr().cast::<c_void>(), amount(count));
        let read = self.methods().read;
        // SAFETY: the buffer has room for that many bytes.
        let done = read.map(|read| unsafe { read(self.file(), address, amount, place(offset)) });
        self.call(done, "read")?;
        Ok(count)
    }

    fn write(&mut self, data: &[u8], offset: u64) -> Result<()> {
        let is_next = offset == self.tail_at + self.tail.len() as u64;
        if !is_next || self.tail.len() + data.len() > WRITE_LENGTH_MAX {
            self.write_tail()?;
            self.tail_at = offset;
        }
        if data.len() > WRITE_LENGTH_MAX {
            self.tail_at = offset + data.len() as u64;
            return self.write_through(data, offset);
        }
        self.tail.extend_from_slice(data);
        Ok(())
    }

    fn write_tail(&mut self) -> Result<()> {
        // If this fails, keep the tail: SQLite counts on these bytes, as their writes succeeded.
        self.write_through(&self.tail, self.tail_at)?;
        self.tail_at += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    fn write_through(&self, data: &[u8], offset: u64) -> Result<()> {
        let write = self.methods().write;
        let mut at = offset;
        for part in data.chunks(WRITE_LENGTH_MAX) {
            let (address, amount) = (part.as_ptr().cast::<c_void>(), amount(part.len()));
            // SAFETY: there are that many bytes.
            let done = write.map(|write| unsafe { write(self.file(), address, amount, place(at)) });
            self.call(done, "write")?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        self.write_tail()?;
        let cut = self.methods().truncate;
        // SAFETY: the file is open.
        let done = cut.map(|cut| unsafe { cut(self.file(), place(length)) });
        self.call(done, "shorten")
    }

    fn length(&self) -> Result<u64> {
        let mut length = 0;
        let size = self.methods().file_size;
        // SAFETY: the file is open.
        let done = size.map(|size| unsafe { size(self.file(), &raw mut length) });
        self.call(done, "examine")?;
        let end = self.tail_at + self.tail.len() as u64;
        let written = u64::try_from(length).unwrap_or(0);
        Ok(if self.tail.is_empty() {
            written
        } else {
            written.max(end)
        })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(close) = self.methods().close {
            // SAFETY: the file is open, and nobody uses it any more.
            unsafe { close(self.file()) };
        }
    }
}

/// A length for SQLite, whose buffers are shorter than 2 GiB.
fn amount(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}

fn place(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// See `beneath`.
static BENEATH: AtomicPtr<Vfs> = AtomicPtr::new(ptr::null_mut());

/// Sets what `beneath` returns. Call it before a program can make this file system the default.
pub(crate) fn set_beneath(vfs: *mut Vfs) {
    BENEATH.store(vfs, Ordering::Release);
}

/// The file system beneath this one: SQLite's default when the extension was loaded. It is never
/// this one, even if a program makes this one the default later.
pub(crate) fn beneath() -> *mut Vfs {
    BENEATH.load(Ordering::Acquire)
}
