//! Bits and codes of `linux/fuse.h` that this crate uses.

pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
}

/// FUSE_INIT flags. Bits from 32 on are sent in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Which fields of a SETATTR count (FATTR_*).
pub mod set {
    pub const MODE: u32 = 1 << 0;
    pub const USER: u32 = 1 << 1;
    pub const GROUP: u32 = 1 << 2;
    pub const LENGTH: u32 = 1 << 3;
    pub const ACCESSED: u32 = 1 << 4;
    pub const MODIFIED: u32 = 1 << 5;
    pub const ACCESSED_NOW: u32 = 1 << 7;
    pub const MODIFIED_NOW: u32 = 1 << 8;
    pub const KILL_SET_ID: u32 = 1 << 11;
}

/// FS_IOC_GETFLAGS. The kernel sends the number of its own architecture's programs.
pub const GET_FLAGS: u32 = if cfg!(target_pointer_width = "64") {
    0x8008_6601
} else {
    0x8004_6601
};

/// This write comes from the kernel's cache, and no program's flags belong to it.
pub const WRITE_FROM_CACHE: u32 = 1 << 0;
pub const WRITE_KILL_SET_ID: u32 = 1 << 2;
pub const SETXATTR_ACL_KILL_SET_GROUP_ID: u32 = 1 << 0;
pub const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// No FLUSH is sent when a descriptor is closed. Kernels before 5.16 send it all the same.
pub const OPEN_NO_FLUSH: u32 = 1 << 5;

pub const RENAME_NOREPLACE: u32 = 1 << 0;
pub const RENAME_EXCHANGE: u32 = 1 << 1;

pub const SEEK_DATA: u32 = 3;
pub const SEEK_HOLE: u32 = 4;

/// FUSE_NOTIFY_* codes.
pub mod notify {
    pub const INVALIDATE_INODE: i32 = 2;
    pub const INVALIDATE_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
}
