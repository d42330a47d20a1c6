use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use atomdir_testing::skip;
use rustix::fs::{CWD, Mode};

use super::fresh_directory;

/// Runs all of this program's tests again as the user nobody.
pub fn run_as_ordinary_user() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        // Every test runs as an ordinary user already.
        return;
    }
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("fusermount3") || !has("setpriv") || !has("unshare") {
        let missing = "no fusermount3 (apt install fuse3), setpriv or unshare";
        return skip("as_an_ordinary_user", missing);
    }
    // That user must be able to reach the test program, a directory for mounts, and a
    // device that is open to all, as udev makes it.
    let directory = fresh_directory();
    let (program, temporary) = (directory.join("tests"), directory.join("tmp"));
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir(&temporary).unwrap();
    std::os::unix::fs::chown(&temporary, Some(NOBODY), Some(NOBODY)).unwrap();
    let device = directory.join("fuse");
    let kind = rustix::fs::FileType::CharacterDevice;
    let number = rustix::fs::makedev(10, 229);
    rustix::fs::mknodat(CWD, &device, kind, Mode::empty(), number).unwrap();
    fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
    let script = r#"mount --bind "$1" /dev/fuse && shift && exec setpriv \
        --reuid 65534 --regid 65534 --clear-groups -- "$@""#;
    let output = Command::new("unshare")
        .args(["--mount", "--", "sh", "-c", script, "sh"])
        .args([&device, &program])
        .args(["--nocapture", "--test-threads", "2"])
        .env("TMPDIR", &temporary)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir_all(&directory).unwrap();
}
