//! The environment, and programs found by it, as far as they can be trusted.
//!
//! A program that has more rights than the user who started it, because it is set-user-id, set-group-id
//! or has capabilities, gets its environment from that user. The kernel says so in the auxiliary
//! vector, and secure_getenv(3) then finds nothing. Neither does this library: no configuration, no
//! transaction and no program comes from such an environment.

use crate::trust::Owned;
use rustix::process::{getegid, geteuid, getgid, getuid};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where the system's administrator installs programs.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Whether the environment may come from a user with fewer rights.
pub(crate) fn is_untrusted() -> bool {
    // SAFETY: the call takes a number and returns one.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    is_secure || getuid() != geteuid() || getgid() != getegid()
}

/// A variable; `None` in an environment that cannot be trusted.
pub(crate) fn variable(name: impl AsRef<OsStr>) -> Option<OsString> {
    match is_untrusted() {
        true => None,
        false => std::env::var_os(name),
    }
}

/// The variables of a service: those of this process, or the system's.
pub(crate) fn of_service(names: &[&'static str]) -> Vec<(&'static str, OsString)> {
    match is_untrusted() {
        true => vec![("PATH", PROGRAMS.join(":").into())],
        false => names
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)))
            .collect(),
    }
}

/// The path of a program. A bare name is looked up by the caller's `PATH`, or in the system's
/// directories if that cannot be trusted. Then only a program is taken that nobody can change but
/// root and the user whose rights this process has.
pub(crate) fn program(program: &Path) -> Option<PathBuf> {
    if !is_untrusted() {
        return Some(program.to_owned());
    }
    let is_safe = |path: &PathBuf| Owned::at(path).is_ok_and(|owned| owned.check_closed().is_ok());
    let candidates: Vec<PathBuf> = match program.is_absolute() {
        true => vec![program.to_owned()],
        false if program.components().count() == 1 => PROGRAMS
            .iter()
            .map(|place| Path::new(place).join(program))
            .collect(),
        false => Vec::new(),
    };
    candidates.into_iter().find(is_safe)
}
