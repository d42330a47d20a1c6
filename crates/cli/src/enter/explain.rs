//! Advice for a user whose command cannot be run in a view.

use super::{EnterError, Step};
use crate::error::of_errno;
use crate::explain::ExitCode;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The exit code, and a hint.
pub fn explain(error: &EnterError) -> (u8, Option<String>) {
    match error {
        // The exit codes of a shell.
        EnterError::NoSuchProgram { program } => (127, instead_of(program)),
        EnterError::NotExecutable { .. } => (126, None),
        EnterError::Start { .. }
        | EnterError::Wait(_)
        | EnterError::StayBehind(_)
        | EnterError::LeftBehind(_) => (ExitCode::Internal.code(), None),
        EnterError::Forbidden { failure, .. }
            if (failure.step, failure.errno) == (Step::HoldMounts, Errno::INVAL) =>
        {
            let hint = "the root directory is no mount, as after a plain chroot: \
                        `mount --bind DIR DIR` before it makes DIR one";
            (ExitCode::Configuration.code(), Some(hint.to_owned()))
        }
        EnterError::Forbidden { .. } => (
            ExitCode::Configuration.code(),
            Some(
                "allow user namespaces (sysctl user.max_user_namespaces, \
                 kernel.apparmor_restrict_unprivileged_userns, or the container's settings), or \
                 work in the path that `atomdir begin` prints; with --allow-unbound the command \
                 runs there, and what it does by the store's own path is not undone"
                    .to_owned(),
            ),
        ),
        EnterError::NotLent(_) => (
            ExitCode::Configuration.code(),
            Some(
                "allow user namespaces; a transaction of `atomdir run --view exact` can also be \
                 entered with --allow-unbound"
                    .to_owned(),
            ),
        ),
        EnterError::StillWriting {
            transaction,
            loop_devices,
        } => {
            let until = match &loop_devices[..] {
                [] => "once they are closed".to_owned(),
                devices => format!("after `losetup -d {}`", devices.join(" ")),
            };
            let hint = format!(
                "it is still open: {until}, `atomdir commit {transaction}` lands its changes; \
                 `atomdir abort {transaction}` drops them"
            );
            (ExitCode::Conflict.code(), Some(hint))
        }
        EnterError::Unseen { .. } => (
            ExitCode::Configuration.code(),
            Some(
                "a directory above it is closed to you, and the command could open it: give \
                 yourself search permission there, or unmount it"
                    .to_owned(),
            ),
        ),
        EnterError::Seal { .. } => (
            ExitCode::Configuration.code(),
            Some(
                "a command is sealed in a mount namespace of its own: allow user namespaces, or \
                 leave --sealed, --confine, --ask and --dry-run out; --allow-unbound does not \
                 apply here"
                    .to_owned(),
            ),
        ),
        EnterError::SetUp { failure, .. } => match (failure.step, failure.errno) {
            (Step::Bind, Errno::ACCESS | Errno::PERM) => (
                ExitCode::NotPermitted.code(),
                Some("only the user who runs the store's service can enter its views".into()),
            ),
            (Step::ChangeDirectory, Errno::NOENT) => (
                ExitCode::NotFound.code(),
                Some("the directory is not in the snapshot; choose one with -C".into()),
            ),
            (_, errno) => (of_errno(errno), None),
        },
    }
}

/// Commands that only a shell has, since they act on the shell itself.
const OF_THE_SHELL: [&str; 12] = [
    ".", "alias", "cd", "eval", "exec", "exit", "export", "popd", "pushd", "set", "source", "umask",
];

/// Words that only a shell understands, such as `cd`, have another command to run instead.
fn instead_of(program: &Path) -> Option<String> {
    let name = program.as_os_str();
    if name == "cd" {
        let hint = "`cd` belongs to the shell: `atomdir -C DIR run -- COMMAND` runs a command in DIR, \
                    `sh -c 'cd DIR && COMMAND'` changes there within one";
        return Some(hint.to_owned());
    }
    if OF_THE_SHELL.iter().any(|one| name == *one) {
        let name = name.display();
        return Some(format!(
            "`{name}` belongs to the shell: `sh -c '{name} ...'` runs a line with it"
        ));
    }
    let is_line = |byte: &u8| b" \t\n;|&<>$`*?=".contains(byte);
    name.as_bytes().iter().any(is_line).then(|| {
        "the program and each of its arguments are words of their own; `sh -c 'LINE'` runs a line as \
         a shell does"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_words_of_the_shell_get_a_hint() {
        let hint = |program: &str| instead_of(Path::new(program)).unwrap_or_default();
        for line in ["a; b", "make install", "x=1", "ls|wc", "*.sh"] {
            assert!(hint(line).contains("`sh -c 'LINE'`"), "{line}");
        }
        assert!(hint("cd").contains("`atomdir -C DIR run -- COMMAND`"));
        assert!(hint("source").contains("`sh -c 'source ...'`"));
        assert_eq!(hint("./upgrade"), "");
    }
}
