//! Reports tests that did not run, so that they are seen and counted: those that cannot run here,
//! and those that only the full tier runs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fixture::Fixture;
use crate::tier::full_tier;

/// Reports that `test` did not run, on standard error past the test runner's capture,
/// and in the skip file. The caller then returns. The test runner names the thread of a test after
/// it, and this name counts, since several tests may share the caller.
pub fn skip(test: &str, reason: &str) {
    report("SKIPPED", test, reason);
}

/// Whether the full tier runs. If not, this reports that only `./test --full` runs the test, which
/// is not counted as skipped. The caller then returns.
pub fn only_in_full_tier(test: &str) -> bool {
    if !full_tier() {
        report("LEFT OUT", test, "only ./test --full runs it");
    }
    full_tier()
}

fn report(what: &str, test: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(test);
    let line = format!("{what}: {test}: {reason}\n");
    // A lost message must not fail the test, which could not run anyway.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(skip_file());
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Something that tests/install-tools.sh has put into the cache directory of the user who runs it, by
/// its path there. Reports the test as skipped if it is missing.
pub fn cached(test: &str, path: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let found = cache.or_else(home)?.join("atomdir").join(path);
    if !found.exists() {
        skip(
            test,
            &format!("no {path} in the cache; run tests/install-tools.sh"),
        );
        return None;
    }
    Some(found)
}

/// Whether all programs are installed. If not, this reports the test as skipped.
pub fn tools_present(test: &str, tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| !is_on_path(tool))
        .collect();
    if missing.is_empty() {
        return true;
    }
    let names = missing.join(", ");
    skip(
        test,
        &format!("not installed: {names}; run tests/install-tools.sh"),
    );
    false
}

/// Whether native views are possible here. If not, this reports the test as skipped.
pub fn native_views_possible(test: &str) -> bool {
    let fixture = Fixture::new("native-possible", "touch a");
    let outcome = fixture.store.run_with(&["--view", "native"], "true");
    if outcome.code != 0 {
        skip(test, &format!("no native views here: {outcome}"));
    }
    outcome.code == 0
}

/// Whether ordinary users can mount views here. If not, this reports the test as skipped.
pub fn users_can_mount(test: &str) -> bool {
    if !tools_present(test, &["fusermount3"]) {
        return false;
    }
    let device = std::fs::metadata("/dev/fuse");
    let open_to_all = device.is_ok_and(|device| device.permissions().mode() & 0o006 == 0o006);
    if !open_to_all {
        skip(
            test,
            "users cannot open /dev/fuse here; chmod 666 /dev/fuse, as most systems do",
        );
    }
    open_to_all
}

fn is_on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|directory| directory.join(tool).is_file())
}

fn skip_file() -> PathBuf {
    match std::env::var_os("ATOMDIR_SKIP_FILE") {
        Some(path) => path.into(),
        None => Path::new("/var/tmp/atomdir-skipped.txt").to_owned(),
    }
}
