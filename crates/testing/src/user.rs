//! Users that exist on every Debian, for tests that must not run as root.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

const STRANGER: &str = "games";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: &'static str,
    pub uid: u32,
    pub gid: u32,
    /// The home, with the runtime directory. It is in the test's scratch directory, so that no test
    /// finds what another has left.
    home: PathBuf,
}

impl User {
    pub fn root(scratch: &Path) -> Self {
        Self::new("root", 0, 0, scratch)
    }

    /// The owner of stores that are not root's.
    pub fn ordinary(scratch: &Path) -> Self {
        Self::new("nobody", 65534, 65534, scratch)
    }

    /// A user who owns no store.
    pub fn stranger(scratch: &Path) -> Self {
        Self::new(STRANGER, 5, 60, scratch)
    }

    fn new(name: &'static str, uid: u32, gid: u32, scratch: &Path) -> Self {
        Self {
            name,
            uid,
            gid,
            home: scratch.join(format!("home-{name}")),
        }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Makes the command run as this user with an environment of its own: of the developer's
    /// settings it gets only the search path. If the test's environment has ATOMDIR_TEST_VIEW,
    /// `run` uses that kind of view unless an option names another.
    pub fn dress(&self, command: &mut Command) {
        std::fs::create_dir_all(self.home.join("run"))
            .and_then(|()| std::os::unix::fs::chown(&self.home, Some(self.uid), Some(self.gid)))
            .and_then(|()| {
                std::os::unix::fs::chown(self.home.join("run"), Some(self.uid), Some(self.gid))
            })
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", self.home.display()));
        std::fs::set_permissions(
            self.home.join("run"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap_or_else(|error| panic!("cannot restrict {}/run: {error}", self.home.display()));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("USER", self.name)
            .env("LOGNAME", self.name)
            .env("SHELL", "/bin/sh")
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        if let Some(view) = std::env::var_os("ATOMDIR_TEST_VIEW") {
            command.env("ATOMDIR_VIEW", view);
        }
        if !self.is_root() {
            // A login sets these. There are no supplementary groups, since std drops them
            // when root sets a user without naming any.
            command
                .env("XDG_RUNTIME_DIR", self.home.join("run"))
                .uid(self.uid)
                .gid(self.gid);
        }
    }
}

/// Calls `act` in a thread of its own that has the user's permissions. Only root can do this.
pub fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(move || {
            become_user(user).unwrap_or_else(|errno| panic!("cannot become {user}: {errno}"));
            act()
        });
        acting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Changes the user of this thread alone.
fn become_user(user: u32) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}
