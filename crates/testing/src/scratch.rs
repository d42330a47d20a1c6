//! A directory for one test. It is removed when the test ends, even if it fails.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mounts::{mounts, unmount};
use crate::tier::full_tier;

/// Linux's `include/uapi/linux/magic.h`
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// How much space the tests of one program may need at once.
const QUICK_BYTES_MIN: u64 = 1 << 30;

/// Where tests of many small steps put their files. For the quick tier this is in memory, if
/// there is room: such tests show which calls are made, not what a disk does with them.
pub fn quick_directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let has_room = || {
        let is_memory = rustix::fs::statfs(memory).is_ok_and(|found| found.f_type == TMPFS_MAGIC);
        let room = rustix::fs::statvfs(memory).map(|found| found.f_bavail * found.f_frsize);
        is_memory && room.is_ok_and(|room| room >= QUICK_BYTES_MIN)
    };
    match !full_tier() && has_room() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// Makes a directory that no other test has. Its name may be taken by what a killed test has left, or
/// by a test in another process namespace, since processes are counted from 1 in each of them.
pub fn fresh_directory(parent: &Path, name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("atomdir-{name}-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return path,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot make {}: {error}", path.display()),
        }
    }
}

#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// By default the directory is in `/var/tmp`, on a disk's file system, since `/tmp` is
    /// often in memory.
    pub fn new(test: &str) -> Self {
        let parent = std::env::var_os("ATOMDIR_TEST_DIR")
            .map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        fs::create_dir_all(&parent)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", parent.display()));
        let path = fresh_directory(&parent, test);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .and_then(|()| fs::canonicalize(&path))
            .map(|path| Self { path })
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("ATOMDIR_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
            return;
        }
        // The deepest come first, since a mount may lie below another.
        let mut inside: Vec<PathBuf> = mounts()
            .into_iter()
            .map(|mount| mount.point)
            .filter(|point| point.starts_with(&self.path))
            .collect();
        inside.sort();
        for point in inside.iter().rev() {
            unmount(point);
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}
