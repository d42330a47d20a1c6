//! The real file systems, and how each is made, mounted and checked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::recording::AtomicUnits;
use atomdir_testing::{capture_output, unmount};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The programs that make, mount and check it.
    pub fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mkfs.ext4", "e2fsck", "mount", "losetup"],
            Self::Xfs => &["mkfs.xfs", "xfs_repair", "mount", "losetup"],
            Self::Btrfs => &["mkfs.btrfs", "btrfs", "mount", "losetup"],
        }
    }

    /// In bytes; about the least that its mkfs accepts.
    pub fn length_min(self) -> u64 {
        match self {
            Self::Ext4 => 64 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 128 << 20,
        }
    }

    /// The units that the file system expects the disk to write whole.
    ///
    /// XFS detects a torn directory block by its checksum, but does not repair it: log recovery
    /// skips a block whose header has the newer log sequence number already.
    pub fn atomic_units(self) -> AtomicUnits {
        let (sector_length, superblock) = match self {
            Self::Ext4 => (512, 1024..2048),
            Self::Xfs => (4096, 0..512),
            Self::Btrfs => (512, 65536..69632),
        };
        AtomicUnits {
            sector_length,
            superblock,
        }
    }

    #[track_caller]
    pub fn make(self, file: &Path) {
        let arguments: &[&str] = match self {
            Self::Ext4 => &[
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ],
            Self::Xfs => &["-q", "-f", "-K"],
            Self::Btrfs => &["-q", "-f", "-K"],
        };
        let program = format!("mkfs.{}", self.name());
        capture_output(Command::new(program).args(arguments).arg(file)).expect(0);
    }

    /// Checks the file system, which must not be mounted, and panics if it has errors.
    #[track_caller]
    pub fn check(self, file: &Path) {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Ext4 => ("e2fsck", &["-f", "-n"]),
            Self::Xfs => ("xfs_repair", &["-f", "-n"]),
            Self::Btrfs => ("btrfs", &["check", "--readonly"]),
        };
        capture_output(Command::new(program).args(arguments).arg(file)).expect(0);
    }
}

/// Makes a directory for mounts whose end reaches other mount namespaces: those of programs that
/// run elsewhere have copies of the mounts. It is unmounted with its scratch directory.
#[track_caller]
pub fn mount_shared(point: &Path) {
    std::fs::create_dir_all(point).expect("the mount point can be made");
    rustix::mount::mount("mounts", point, "tmpfs", MountFlags::empty(), None)
        .and_then(|()| rustix::mount::mount_change(point, MountPropagationFlags::SHARED))
        .unwrap_or_else(|error| panic!("cannot mount on {}: {error}", point.display()));
}

/// A file system on a loop device over a file. Dropping it detaches the mount even if it is in use.
/// The kernel frees the loop device after its last user.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    #[track_caller]
    pub fn mount(file_system: FileSystem, file: &Path, point: &Path) -> Self {
        std::fs::create_dir_all(point).expect("the mount point can be made");
        let mut command = Command::new("mount");
        command.args(["-t", file_system.name(), "-o", "loop,noatime"]);
        capture_output(command.arg(file).arg(point)).expect(0);
        Self {
            point: point.to_owned(),
            is_mounted: true,
        }
    }

    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts the file system, which flushes everything. Waits while it is in use.
    #[track_caller]
    pub fn unmount(mut self) {
        loop {
            match rustix::mount::unmount(&self.point, UnmountFlags::empty()) {
                Ok(()) => break,
                // A process that was killed has not quite ended.
                Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => panic!("cannot unmount {}: {error}", self.point.display()),
            }
        }
        self.is_mounted = false;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount(&self.point);
        }
    }
}
