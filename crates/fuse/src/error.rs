use std::path::PathBuf;

use atomdir_disk::{Errno, reason};

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    #[error(
        "cannot open /dev/fuse: {source}; load the kernel's fuse module (modprobe fuse), \
         give the container this device, or let users open it (chmod 666 /dev/fuse)",
        source = reason(source)
    )]
    NoDevice { source: Errno },
    #[error(
        "no fusermount3 found, which an ordinary user needs to mount; \
         install it (apt install fuse3), or ask root to run the service"
    )]
    NoFusermount,
    #[error(
        "not permitted to mount on {path}; this needs root (in a container: CAP_SYS_ADMIN, as \
         `--cap-add SYS_ADMIN` gives it), or the setuid program fusermount3 and a directory of your own"
    )]
    NotPermitted { path: PathBuf },
    #[error("fusermount3 could not mount on {path}: {message}")]
    Fusermount { path: PathBuf, message: String },
    #[error("cannot mount on {path}: {source}", source = reason(source))]
    Mount { path: PathBuf, source: Errno },
    #[error(
        "the kernel's FUSE protocol {major}.{minor} is too old, or lacks what is needed; \
         use Linux 5.15 or newer"
    )]
    KernelTooOld { major: u32, minor: u32 },
    #[error("the kernel's first FUSE message could not be read or answered: {source}", source = reason(source))]
    Handshake { source: Errno },
    #[error("cannot start a thread to serve {path}: {source}; raise the limit on processes", source = reason(source))]
    Thread { path: PathBuf, source: Errno },
}

/// Why a file system could not be unmounted. Its session has ended all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    #[error("cannot unmount {path}: {source}; try: umount -l {path}", source = reason(source))]
    Unmount { path: PathBuf, source: Errno },
    #[error("fusermount3 could not unmount {path}: {message}; try: fusermount3 -u -z {path}")]
    Fusermount { path: PathBuf, message: String },
}
