//! Running a test of this program once more, in another process.

use std::process::Command;

use crate::scratch::Scratch;
use crate::user::User;

/// Runs the test's body as this user and, if that is root, once more as an ordinary user. To
/// that end the test program runs itself with only this test.
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

/// This test program with only this test, as the same user.
pub fn this_program(test: &str) -> Command {
    let program = std::env::current_exe().expect("this program's path");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]);
    command
}
