//! A program that uses a file so that the file must keep its inode.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::null_mut;

/// How a program uses a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// As a log, which it appends to.
    Append,
    /// It is open for writing.
    Write,
    /// The first page is mapped for writing, and the descriptor is closed.
    Mapped,
    /// It is locked by `flock`, through a descriptor that only reads.
    Flock,
    /// A part of it is locked by an OFD lock, through a descriptor that only reads.
    RecordLock,
    /// It is open for reading, which changes nothing.
    Read,
}

impl Usage {
    pub const ALL: [Usage; 6] = [
        Usage::Append,
        Usage::Write,
        Usage::Mapped,
        Usage::Flock,
        Usage::RecordLock,
        Usage::Read,
    ];

    /// Whether the file must keep its inode.
    pub fn needs_inode(self) -> bool {
        self != Usage::Read
    }
}

/// The program. It ends when this is dropped.
#[derive(Debug)]
pub struct Using {
    usage: Usage,
    file: Option<File>,
    mapped: *mut u8,
}

const PAGE: usize = 4096;

impl Using {
    /// A mapped file must not be empty.
    #[track_caller]
    pub fn begin(usage: Usage, path: &Path) -> Using {
        let mut options = OpenOptions::new();
        match usage {
            Usage::Append => options.append(true),
            Usage::Write | Usage::Mapped => options.read(true).write(true),
            Usage::Flock | Usage::RecordLock | Usage::Read => options.read(true),
        };
        let file = options.open(path).expect("the file is there");
        let mut using = Using {
            usage,
            file: Some(file),
            mapped: null_mut(),
        };
        match usage {
            Usage::Mapped => using.map(),
            Usage::Flock | Usage::RecordLock => {
                let is_locked = using
                    .file
                    .as_ref()
                    .is_some_and(|file| try_lock(usage, file));
                assert!(is_locked, "the file is locked already");
            }
            Usage::Append | Usage::Write | Usage::Read => {}
        }
        using
    }

    #[track_caller]
    fn map(&mut self) {
        let file = self.file.take().expect("it is open");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, descriptor) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { libc::mmap(null_mut(), PAGE, access, flags, descriptor, 0) };
        assert_ne!(address, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        self.mapped = address.cast();
    }

    /// Whether the path is still the file that the program uses: what the program writes shows
    /// there, and its lock keeps others out.
    #[track_caller]
    pub fn has(&mut self, path: &Path) -> bool {
        let mark = b"USED";
        match (self.usage, &mut self.file) {
            (Usage::Append, Some(file)) => {
                file.write_all(mark).expect("it is written");
                std::fs::read(path).expect("it is read").ends_with(mark)
            }
            (Usage::Write, Some(file)) => {
                file.write_all_at(mark, 0).expect("it is written");
                std::fs::read(path).expect("it is read").starts_with(mark)
            }
            (Usage::Mapped, _) => {
                self.store(mark);
                std::fs::read(path).expect("it is read").starts_with(mark)
            }
            (Usage::Flock | Usage::RecordLock, _) => {
                !try_lock(self.usage, &File::open(path).expect("it is there"))
            }
            (Usage::Append | Usage::Write | Usage::Read, _) => false,
        }
    }

    /// Stores bytes at the start of the mapping.
    pub fn store(&self, bytes: &[u8]) {
        assert!(
            !self.mapped.is_null() && bytes.len() <= PAGE,
            "it is mapped"
        );
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: the mapping has a page, and only this writes to it in this process.
            unsafe { self.mapped.add(offset).write_volatile(*byte) };
        }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if !self.mapped.is_null() {
            // SAFETY: it was mapped with this length, and nothing refers to it any more.
            unsafe { libc::munmap(self.mapped.cast(), PAGE) };
        }
    }
}

/// Takes the lock. Returns false if it excludes this.
fn try_lock(usage: Usage, file: &File) -> bool {
    let descriptor = file.as_raw_fd();
    if usage == Usage::Flock {
        // SAFETY: this takes numbers.
        return unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) } == 0;
    }
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 1,
        l_len: 1,
        l_pid: 0,
    };
    // A descriptor that only reads can ask for a write lock, but only take a read lock.
    // SAFETY: the kernel reads and writes this structure during the call.
    let asked = unsafe { libc::fcntl(descriptor, libc::F_OFD_GETLK, &raw mut lock) };
    if asked != 0 || lock.l_type != libc::F_UNLCK as libc::c_short {
        return false;
    }
    lock.l_type = libc::F_RDLCK as libc::c_short;
    // SAFETY: the kernel only reads this structure.
    unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) == 0 }
}
