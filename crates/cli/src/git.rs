//! What git needs in a store, in its view and after a commit.
//!
//! - A view is another file system, where git stops looking for a repository above the store
//!   unless it is told to go on.
//! - Git takes a file for unchanged if its data in stat(2) are as git has noted them. In a view a
//!   file has another inode number than after the commit, which also sets its change time. Git
//!   has settings for file systems of that kind, so `init` chooses them in a repository. Then the
//!   size and the time of modification count, and these stay as they are.

use rustix::fs::stat;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

const ACROSS: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";
const SETTINGS: [(&str, &str); 2] = [("core.checkStat", "minimal"), ("core.trustctime", "false")];

/// Whether git would take the directory for a part of a work tree.
pub fn is_in_work_tree(root: &Path) -> bool {
    let mut above = root.ancestors();
    above.any(|directory| stat(directory.join(".git")).is_ok())
}

/// Lets git find the repository from within the view of a store below the repository's root.
pub fn environment(root: &Path) -> Option<(&'static str, OsString)> {
    let above = root.parent()?;
    let is_wanted = is_in_work_tree(above) && std::env::var_os(ACROSS).is_none();
    is_wanted.then(|| (ACROSS, "1".into()))
}

/// Makes git compare sizes and times of modification only. Returns the settings that this has
/// changed. What the user has set stays, and a repository that git refuses is left alone.
pub fn settle(root: &Path) -> Vec<&'static str> {
    if !is_in_work_tree(root) {
        return Vec::new();
    }
    let mut settled = Vec::new();
    for (name, value) in SETTINGS {
        // It exits with 1 if nobody has set it, in the repository or for all of the user's.
        let is_unset = git(root, &["config", "--get", name]) == Some(1);
        if is_unset && git(root, &["config", "--local", name, value]) == Some(0) {
            settled.push(name);
        }
    }
    settled
}

fn git(root: &Path, words: &[&str]) -> Option<i32> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(words);
    // A hook of git's gets these, and they would lead to another repository.
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.as_encoded_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().ok()?.code()
}
