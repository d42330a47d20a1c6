//! A C project from its Debian source package is unpacked, configured, compiled on two
//! processors and tested by its own tests, all in one transaction.

use std::path::{Path, PathBuf};
use std::process::Command;

use atomdir_testing::{
    Action, Outcome, Scenario, Scratch, capture_output, full_tier, skip, tools_present,
};

/// Fetches a source package with apt, which checks its signatures, without changing the
/// machine's own list of sources.
const FETCH: &str = r#"
mkdir -p lists/partial archives/partial
echo 'deb-src http://deb.debian.org/debian bookworm main' > sources.list
apt() {
    apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/archives" \
        -o APT::Sandbox::User=root "$@"
}
apt update && apt source --download-only "$1"
"#;

pub(crate) fn fetch(scratch: &Scratch, package: &str) -> Result<PathBuf, Outcome> {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-ec", FETCH, "sh", package])
        .current_dir(scratch.path());
    let outcome = capture_output(&mut command);
    let archive = std::fs::read_dir(scratch.path())
        .expect("the scratch directory can be listed")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains(".orig.tar.") && !ends_with_signature(path));
    match archive {
        Some(archive) if outcome.code == 0 => Ok(archive),
        _ => Err(outcome),
    }
}

fn ends_with_signature(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "asc")
}

#[test]
fn configure_make_and_check() {
    const TEST: &str = "c-project";
    if !tools_present(TEST, &["apt-get", "dpkg-source", "gcc", "make", "xz"]) {
        return;
    }
    let scratch = Scratch::new(TEST);
    // A configuration with autoconf, as gzip's, runs for half a minute each time.
    let package = if full_tier() { "gzip" } else { "zlib" };
    let archive = match fetch(&scratch, package) {
        Ok(archive) => archive,
        Err(outcome) => return skip(TEST, &format!("no source of {package}: {outcome}")),
    };
    let script = format!(
        r#"
tar xf '{}' --no-same-owner --strip-components=1
./configure --prefix=/usr > configure.out
make -j2 > /dev/null
make check > check.out 2>&1
grep -E '^# |OK|tests? ' check.out
make install DESTDIR="$PWD/installed" > /dev/null
find installed -type f | LC_ALL=C sort | xargs sha256sum
make clean > /dev/null
"#,
        archive.display()
    );
    // The logs contain the compiler's temporary names.
    Scenario::new(TEST, Action::Shell(script))
        .same_output()
        .without("config.log")
        .without("configure.log")
        .check();
}
