//! Source packages of Debian: programs of others, for the tests.

use crate::{Outcome, Scratch, capture_output};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Fetches a source package with apt, which checks its signatures, without changing the
/// machine's own list of sources. Returns the path of its archive.
pub fn debian_source(scratch: &Scratch, package: &str) -> Result<PathBuf, Outcome> {
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
