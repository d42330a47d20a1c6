//! Errors of looking for a store.

use super::{Explain, errno_exit_code};
use crate::accounts::describe_user;
use crate::mounts;
use crate::trust::{Distrust, configuration};
use atomdir_disk::reason;
use atomdir_protocol::ExitCode;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why no store was found, or why one is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No directory on the way up is a store.
    #[error("no store holds '{start}': neither it nor a directory above it has a .atomdir")]
    NoStore {
        /// Where the search began.
        start: PathBuf,
    },
    /// The path is in the view of a transaction.
    #[error("'{path}' is in the view of a transaction, from which its store cannot be reached")]
    InView {
        /// The path.
        path: PathBuf,
    },
    /// The path looks like a view, and another user may have made it.
    #[error(
        "'{path}' looks like a view, but {} may have mounted it, so it is not taken for one",
        describe_user(*user)
    )]
    ForeignView {
        /// The path.
        path: PathBuf,
        /// The numeric id of that user.
        user: u32,
    },
    /// Somebody else could decide what the store contains.
    #[error("the store '{store}' is not trusted: {reason}")]
    Untrusted {
        /// The store's root.
        store: PathBuf,
        /// The reason.
        reason: Distrust,
        /// The caller's configuration, which can list the store.
        configuration: Option<PathBuf>,
    },
    /// A system call failed.
    #[error("cannot look for a store at '{path}': {errno}", errno = reason(errno))]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        errno: Errno,
    },
    /// The path does not lead to a control directory.
    #[error("'{path}' is neither a control directory nor a file that names one")]
    NotAControl {
        /// The path.
        path: PathBuf,
    },
    /// The directory was copied, and still names the control directory of the original.
    #[error("'{root}' is a copy of the store whose control directory is '{control}'")]
    Copied {
        /// The copy's root.
        root: PathBuf,
        /// The control directory.
        control: PathBuf,
    },
    /// The control directory that the path names cannot be used.
    #[error(
        "'{path}' says that the control directory is '{control}', which cannot be used: {reason}"
    )]
    BadControl {
        /// The path.
        path: PathBuf,
        /// The control directory.
        control: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl FindError {
    pub(crate) fn untrusted(store: &Path, reason: Distrust) -> FindError {
        FindError::Untrusted {
            store: store.to_owned(),
            reason,
            configuration: configuration::path(),
        }
    }
}

impl Explain for FindError {
    fn exit_code(&self) -> ExitCode {
        match self {
            FindError::NoStore { .. } | FindError::InView { .. } => ExitCode::NotFound,
            FindError::ForeignView { .. } | FindError::Untrusted { .. } => ExitCode::NotPermitted,
            FindError::Io { errno, .. } => errno_exit_code(*errno),
            FindError::NotAControl { .. }
            | FindError::BadControl { .. }
            | FindError::Copied { .. } => ExitCode::Configuration,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            FindError::NoStore { start } => may_become_store(start)
                .then(|| format!("`atomdir init {}` makes it a store", for_shell(start))),
            FindError::InView { .. } | FindError::ForeignView { .. } => Some(
                "name the store and the transaction, from outside the view: `atomdir -C STORE diff TX`"
                    .to_owned(),
            ),
            FindError::Untrusted {
                store,
                configuration,
                ..
            } => Some(trust_hint(store, configuration.as_deref())),
            FindError::BadControl { path, .. } => Some(format!(
                "if the control directory was moved, write its path into {}",
                path.display()
            )),
            FindError::Copied { root, .. } => Some(format!(
                "`rm {0}/.atomdir && atomdir init {0}` makes the copy a store of its own",
                for_shell(root)
            )),
            FindError::Io { .. } | FindError::NotAControl { .. } => None,
        }
    }
}

/// Writes a path as one word of a shell command, for pasting.
fn for_shell(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain =
        |character: char| character.is_alphanumeric() || "/._-+,@%:=".contains(character);
    if path.chars().all(is_plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Whether to advise making it a store. Someone who ended up at the root of a file
/// system, or above all mounts, does not want a store there.
fn may_become_store(directory: &Path) -> bool {
    directory != Path::new("/") && !mounts::any_below(directory)
}

fn trust_hint(store: &Path, configuration: Option<&Path>) -> String {
    let once = "--trust uses it this once";
    match configuration {
        Some(file) => format!(
            "{once}, the line `trust {}` in {} always; who can write there then \
             decides what you see and run",
            store.display(),
            file.display()
        ),
        None => once.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_hint_is_one_word_of_a_shell() {
        assert_eq!(for_shell(Path::new("/srv/a-b_c.d")), "/srv/a-b_c.d");
        assert_eq!(for_shell(Path::new("/a b")), "'/a b'");
        assert_eq!(for_shell(Path::new("/$(x)'y")), r"'/$(x)'\''y'");
    }
}
