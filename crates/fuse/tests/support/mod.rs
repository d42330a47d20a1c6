//! Helpers for tests of mounted file systems.
#![allow(dead_code)] // Each test uses a part of it.

pub mod memory;
mod ordinary_user;
mod put_off;
pub mod store;

pub use ordinary_user::run_as_ordinary_user;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atomdir_fuse::{Filesystem, MountFlags, MountOptions, Session, UnmountError};
use atomdir_testing::skip;
use memory::Memory;

/// A mounted [`Memory`]. Drop unmounts it, even if the test fails.
pub struct Mounted {
    pub path: PathBuf,
    pub session: Option<Session>,
    pub filesystem: Arc<Memory>,
}

pub fn options() -> MountOptions {
    MountOptions {
        source: "atomdir test".to_owned(),
        others_allowed: true,
        flags: MountFlags::empty(),
        workers: 3,
        rings: std::env::var_os("ATOMDIR_FUSE").is_none_or(|way| way != "classic"),
    }
}

/// `None`, and a loud message, if FUSE cannot be used at all.
pub fn mount() -> Option<Mounted> {
    let mounted = mount_by(&options())?;
    let enabled = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let enabled = enabled.is_ok_and(|text| text.trim() == "Y");
    assert_eq!(mounted.session().has_rings(), enabled && options().rings);
    Some(mounted)
}

pub fn mount_by(options: &MountOptions) -> Option<Mounted> {
    if !Path::new("/dev/fuse").exists() {
        skip("a mount", "no /dev/fuse on this machine");
        return None;
    }
    if !rustix::process::geteuid().is_root() && !has_helper() {
        skip(
            "a mount",
            "neither root nor fusermount3 (apt install fuse3)",
        );
        return None;
    }
    let path = fresh_directory();
    let filesystem = Arc::new(Memory::new());
    let session = serve(Arc::clone(&filesystem), &path, options);
    Some(Mounted {
        path,
        session: Some(session),
        filesystem,
    })
}

/// Held while a session begins, which forks its child process, and while a session ends.
///
/// Only these tests open files in mounts that their own process serves. The child inherits
/// their descriptors and closes them, and for each the kernel sends a request to the session
/// that serves it. A session that is about to end may not answer. Its connection would not
/// break either, since the child has a copy of its descriptor.
static FORKING: Mutex<()> = Mutex::new(());

pub fn serve<F: Filesystem>(filesystem: Arc<F>, path: &Path, options: &MountOptions) -> Session {
    let _forking = forking();
    Session::mount(filesystem, path, options).unwrap()
}

fn forking() -> MutexGuard<'static, ()> {
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn end(session: Session) -> Result<(), UnmountError> {
    let _forking = forking();
    let unmounted = session.unmount();
    session.join();
    unmounted
}

pub fn has_helper() -> bool {
    ["/usr/bin/fusermount3", "/bin/fusermount3"]
        .iter()
        .any(|path| Path::new(path).exists())
}

pub fn fresh_directory() -> PathBuf {
    atomdir_testing::fresh_directory(&std::env::temp_dir(), "fuse-test")
}

impl Mounted {
    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// How many requests of each kind `action` costs.
    pub fn requests_of(&self, action: impl FnOnce()) -> Vec<(&'static str, u64)> {
        let before = self.session().requests();
        action();
        // When this lookup is answered, requests without a waiting caller (FORGET, RELEASE)
        // have arrived as well.
        std::fs::metadata(self.join("surely not there")).unwrap_err();
        let after = self.session().requests();
        after
            .into_iter()
            .filter_map(|(opcode, count)| {
                let old = before.iter().find(|(other, _)| *other == opcode);
                let count = count - old.map_or(0, |(_, count)| *count);
                (count > 0).then(|| (opcode_name(opcode), count))
            })
            .collect()
    }

    pub fn unmount(&mut self) {
        end(self.session.take().unwrap()).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = end(session);
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

fn opcode_name(opcode: u32) -> &'static str {
    match opcode {
        1 => "lookup",
        2 | 42 => "forget",
        3 => "getattr",
        4 => "setattr",
        8 => "mknod",
        9 => "mkdir",
        10 => "unlink",
        14 => "open",
        15 => "read",
        16 => "write",
        18 => "release",
        20 => "fsync",
        22 => "getxattr",
        25 => "flush",
        27 => "opendir",
        28 => "readdir",
        35 => "create",
        44 => "readdirplus",
        47 => "copy_file_range",
        _ => "other",
    }
}
