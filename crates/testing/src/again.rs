//! Running a test of this program once more, in another process.

use std::path::Path;
use std::process::Command;

use crate::command::{Outcome, binary, capture_output};
use crate::scratch::Scratch;
use crate::skip::users_can_mount;
use crate::store::Store;
use crate::user::User;

/// Runs the test's body as this user and, if that is root, once more as an ordinary user. For that,
/// the test program runs itself with only this test.
pub fn for_each_user(test: &str, body: impl FnOnce()) {
    body();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let homes = Scratch::new("homes");
    let mut command = this_program(test);
    User::ordinary(homes.path()).dress(&mut command);
    for name in ["ATOMDIR_TEST_DIR", "ATOMDIR_SEED", "ATOMDIR_TIER"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let status = command.current_dir("/").status();
    let status = status.expect("this program runs");
    assert!(status.success(), "{test} as an ordinary user: {status}");
}

/// Like [`for_each_user`], with a directory that is to become a store. Its service is ended even if
/// the body fails. An ordinary user who cannot mount views is left out.
pub fn for_each_user_of_a_store(test: &str, body: impl FnOnce(&Store)) {
    for_each_user(test, || {
        if !rustix::process::geteuid().is_root() && !users_can_mount(test) {
            return;
        }
        let scratch = Scratch::new("of-a-store");
        let base = scratch.join("base");
        std::fs::create_dir(&base).expect("made");
        body(&Store::existing(&base, &User::root(scratch.path())));
    });
}

/// `atomdir -C BASE ARGUMENTS` as the user of the test itself.
pub fn call_here(base: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(binary());
    capture_output(command.arg("-C").arg(base).args(arguments))
}

/// This test program with only this test, as the same user.
pub fn this_program(test: &str) -> Command {
    let program = std::env::current_exe().expect("this program's path");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]);
    command
}
