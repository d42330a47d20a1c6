//! Errors of finding, making and reaching a store.

use std::path::Path;

use atomdir::client::mounts;
use atomdir::{ConnectError, Distrust, FindError, InitError};
use rustix::fs::stat;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{ExitCode, Explain, of_errno};

impl Explain for FindError {
    fn exit_code(&self) -> ExitCode {
        match self {
            FindError::NoStore { .. } | FindError::InView { .. } => ExitCode::NotFound,
            FindError::ForeignView { .. } | FindError::Untrusted { .. } => ExitCode::NotPermitted,
            FindError::Io { errno, .. } => of_errno(*errno),
            FindError::NotAControl { .. }
            | FindError::BadControl { .. }
            | FindError::Copied { .. }
            | FindError::Unadopted { .. }
            | FindError::Inside { .. } => ExitCode::Configuration,
            _ => ExitCode::Internal,
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
            FindError::Io {
                errno: Errno::NOTCONN | Errno::CONNABORTED,
                path,
            } => Some(format!(
                "if the service was killed that served the guard over it: `atomdir umount {0}`, or \
                 `atomdir mount {0}` to go on with a guard",
                for_shell(path)
            )),
            FindError::Untrusted {
                store,
                reason,
                configuration,
            } => Some(trust_hint(store, reason, configuration.as_deref())),
            FindError::BadControl { path, .. } => Some(format!(
                "if the control directory was moved, write its path into {}",
                path.display()
            )),
            FindError::Unadopted { root } => Some(format!(
                "`atomdir init --adopt {}` makes the copy a store of its own, if you trust who made it",
                for_shell(root)
            )),
            FindError::Copied { root, .. } => Some(format!(
                "`rm {0}/.atomdir && atomdir init {0}` makes the copy a store of its own",
                for_shell(root)
            )),
            _ => None,
        }
    }
}

impl Explain for InitError {
    fn exit_code(&self) -> ExitCode {
        match self {
            InitError::NotPermitted { .. }
            | InitError::Untrusted { .. }
            | InitError::OthersStore { .. } => ExitCode::NotPermitted,
            InitError::HasMore { .. } => ExitCode::Conflict,
            InitError::Existing(error) => error.exit_code(),
            InitError::Io { errno, .. } => match of_errno(*errno) {
                ExitCode::NotFound => ExitCode::CannotCreate,
                code => code,
            },
            _ => ExitCode::CannotCreate,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            InitError::NotPermitted { path } => Some(format!(
                "run it as the owner of {} or as root",
                path.display()
            )),
            InitError::Unsuitable { .. } => Some(
                "make the store on ext4, xfs, btrfs or tmpfs; in a container, on a volume or a bind mount of such a file system, or where it is with `atomdir init --copy`"
                    .to_owned(),
            ),
            InitError::HasMore { .. } => Some(
                "`atomdir list`, `log` and `check` show it; with --force it is given up".to_owned(),
            ),
            InitError::LogUnfit { .. } => Some(
                "name a new file in a directory of the store's owner or of root that nobody else can \
                 write"
                    .to_owned(),
            ),
            InitError::OthersStore { owner, .. } => Some(format!("run it as {owner}")),
            InitError::ReadOnly { .. } => Some("mount it read-write first".to_owned()),
            InitError::Untrusted { reason, .. } => Some(match closing(reason) {
                Some(close) => format!("{close}, or make it a store with --trust"),
                None => "make it a store as the owner of that directory, or with --trust".to_owned(),
            }),
            InitError::Existing(error) => error.hint(),
            InitError::ControlElsewhere { path, .. } => Some(format!(
                "choose a control directory on the file system of {}",
                path.display()
            )),
            _ => None,
        }
    }
}

impl Explain for ConnectError {
    fn exit_code(&self) -> ExitCode {
        match self {
            ConnectError::NotRunning { .. } | ConnectError::NotReachedWithin { .. } => {
                ExitCode::NotFound
            }
            ConnectError::NotPermittedToStart { .. }
            | ConnectError::NotPermitted { .. }
            | ConnectError::Replaced { .. }
            | ConnectError::Impostor { .. } => ExitCode::NotPermitted,
            ConnectError::TooManyConnections { .. } => ExitCode::CannotCreate,
            ConnectError::OtherVersion { .. } | ConnectError::Start { .. } => {
                ExitCode::Configuration
            }
            ConnectError::Failed(failure) => failure.kind.into(),
            ConnectError::Io { errno, .. } => of_errno(*errno),
            _ => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ConnectError::NotPermitted { store } => Some(format!(
                "a store of root's is open to those whom `atomdir -C {} config allow` lists",
                store.display()
            )),
            ConnectError::NotPermittedToStart { store, .. } => Some(format!(
                "ask its owner to run `atomdir -C {} service start`",
                store.display()
            )),
            ConnectError::OtherVersion { .. } => Some(
                "stop it with `atomdir service stop` of its own version, then try again".to_owned(),
            ),
            ConnectError::TooManyConnections { .. } => Some("try again later".to_owned()),
            ConnectError::StartedBadly { store } | ConnectError::KeepsEnding { store } => {
                Some(format!(
                    "`atomdir -C {} service run` shows why; service.log in the control directory may too",
                    store.display()
                ))
            }
            ConnectError::Failed(failure) => failure.hint.clone(),
            _ => None,
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

/// What the caller can do about a directory of theirs that others can write.
fn closing(reason: &Distrust) -> Option<String> {
    let Distrust::Writable { path } = reason else {
        return None;
    };
    let user = geteuid();
    let is_own = stat(path).is_ok_and(|stat| user.is_root() || stat.st_uid == user.as_raw());
    is_own.then(|| format!("`chmod go-w {}` keeps others out", for_shell(path)))
}

fn trust_hint(store: &Path, reason: &Distrust, configuration: Option<&Path>) -> String {
    let once = match closing(reason) {
        Some(close) => format!("{close}; --trust uses it this once"),
        None => "--trust uses it this once".to_owned(),
    };
    match configuration {
        Some(file) => format!(
            "{once}, the line `trust {}` in {} always; who can write there then \
             decides what you see and run",
            store.display(),
            file.display()
        ),
        None => once,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_plain_directory_may_become_a_store_but_the_root_may_not() {
        let missing = |start: &str| FindError::NoStore {
            start: start.into(),
        };
        let advice = "`atomdir init '/srv/a site'` makes it a store";
        assert_eq!(missing("/srv/a site").hint().as_deref(), Some(advice));
        assert_eq!(missing("/").hint(), None);
        assert_eq!(missing("/").exit_code(), ExitCode::NotFound);
    }

    /// Whatever is wrong with it, a directory that `init` cannot use exits with one status.
    #[test]
    fn a_directory_that_cannot_become_a_store_exits_as_such() {
        let errno = Errno::NOENT;
        let io = InitError::Io {
            path: "/srv".into(),
            operation: "open",
            errno,
        };
        assert_eq!(io.exit_code(), ExitCode::CannotCreate);
    }

    #[test]
    fn a_path_in_a_hint_is_one_word_of_a_shell() {
        assert_eq!(for_shell(Path::new("/srv/a-b_c.d")), "/srv/a-b_c.d");
        assert_eq!(for_shell(Path::new("/a b")), "'/a b'");
        assert_eq!(for_shell(Path::new("/$(x)'y")), r"'/$(x)'\''y'");
    }
}
