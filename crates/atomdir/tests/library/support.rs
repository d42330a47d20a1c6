//! Stores for these tests, and the same test as another user.

use atomdir::{Door, Store, StoreOptions};
use atomdir_testing::{Scratch, User};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A store in a scratch directory of its own.
pub struct Place {
    pub scratch: Scratch,
    pub base: PathBuf,
}

impl Place {
    pub fn new(test: &str) -> Place {
        let scratch = Scratch::new(test);
        let base = scratch.join("base");
        std::fs::create_dir(&base).expect("a new directory");
        atomdir::init(&base, None).expect("a store");
        Place { scratch, base }
    }

    /// Opens the store in this process.
    pub fn open(&self) -> Store {
        open_embedded(&self.base)
    }

    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.base.join(name)).ok()
    }
}

pub fn open_embedded(base: &Path) -> Store {
    let mut options = StoreOptions::new();
    let store = options.door(Door::Embedded).open(base);
    store.expect("the store opens")
}

/// Runs the test's body as this user and, if that is root, once more as an ordinary user. To
/// that end the test program runs itself with only this test.
pub fn for_each_user(test: &str, body: impl FnOnce()) {
    body();
    if rustix::process::geteuid().is_root() {
        let status = as_user(test).status().expect("this program runs");
        assert!(status.success(), "{test} as an ordinary user: {status}");
    }
}

/// This test program with only this test, as an ordinary user.
fn as_user(test: &str) -> Command {
    let homes = Box::leak(Box::new(Scratch::new("homes")));
    let mut command = this_program(test);
    let user = User::ordinary(homes.path());
    user.dress(&mut command);
    for name in ["ATOMDIR_TEST_DIR", "ATOMDIR_SEED", "ATOMDIR_TIER"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir("/");
    command
}

/// This test program with only this test, as the same user.
pub fn this_program(test: &str) -> Command {
    let program = std::env::current_exe().expect("this program's path");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]);
    command
}
