//! Keeps packages from starting services while their files are in a view only.
//!
//! On Debian and its relatives maintainer scripts ask `/usr/sbin/policy-rc.d` before they start, stop or
//! restart a service. While the command runs, the view has one that forbids everything and
//! writes down what was asked for. It is taken away before the commit, so no commit contains it.

use crate::enter::Tree;
use crate::error::Error;
use crate::files;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

/// In the store `/usr`.
const DIRECTORY: &str = "sbin";
const POLICY: &str = "policy-rc.d";
const ASKED: &str = "policy-rc.d.asked";
/// Where the system's own policy is meanwhile.
const ASIDE: &str = "policy-rc.d.aside";

/// 101 means that the action is forbidden. `deb-systemd-invoke` asks for its first unit only, and
/// then gives up all, so its own words say which these are.
const SCRIPT: &str = r#"#!/bin/sh
# Present while `atomdir run --system` runs: services are started after the commit.
while [ "${1#--}" != "$1" ]; do shift; done
asked="$2 $1"
for process in $PPID $(sed 's/.*) . \([0-9]*\) .*/\1/' /proc/$PPID/stat); do
    words=$(tr '\0' ' ' < /proc/$process/cmdline)
    case $words in
    *deb-systemd-invoke\ *) asked=${words##*deb-systemd-invoke } ;;
    esac
done
echo "$asked" >> "$0.asked"
exit 101
"#;

/// What the policy was asked for, each `ACTION SERVICE...`.
pub type Asked = BTreeSet<Vec<u8>>;

/// A policy in the view of `/usr`.
pub struct Held {
    /// When the directory was changed before that.
    before: Timespec,
    /// And by it.
    placed: Timespec,
    has_aside: bool,
}

impl Held {
    /// Returns `None` if the system has no place for a policy.
    pub fn place(view: &Tree) -> Result<Option<Held>, Error> {
        let Some(directory) = open(view).map_err(failed)? else {
            return Ok(None);
        };
        place(&directory).map(Some).map_err(failed)
    }

    /// Takes it away, and returns what was asked for.
    pub fn take(&self, view: &Tree) -> Result<Asked, Error> {
        let Some(directory) = open(view).map_err(failed)? else {
            return Ok(Asked::new());
        };
        self.take_from(&directory).map_err(failed)
    }

    fn take_from(&self, directory: &OwnedFd) -> Result<Asked, Errno> {
        let changed = modified(&rustix::fs::fstat(directory)?);
        let asked = files::read_at(directory, ASKED).unwrap_or_default();
        remove(directory, ASKED)?;
        // A package may have brought its own.
        if files::read_at(directory, POLICY).is_ok_and(|found| found == SCRIPT.as_bytes()) {
            remove(directory, POLICY)?;
        }
        if self.has_aside {
            match rustix::fs::renameat_with(
                directory,
                ASIDE,
                directory,
                POLICY,
                RenameFlags::NOREPLACE,
            ) {
                Err(Errno::EXIST) => remove(directory, ASIDE)?,
                renamed => renamed?,
            }
        }
        let modified = match changed == self.placed {
            true => self.before,
            false => changed,
        };
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: modified,
        };
        rustix::fs::utimensat(directory, ".", &times, AtFlags::empty())?;
        let lines = asked.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let changing = lines.filter(|line| !line.is_empty() && !line.starts_with(b"status "));
        Ok(changing.map(short).collect())
    }
}

/// `start nginx` and `start nginx.service` are the same.
fn short(line: &[u8]) -> Vec<u8> {
    let words = line.split(|byte| *byte == b' ');
    let words = words.map(|word| word.strip_suffix(b".service").unwrap_or(word));
    words.collect::<Vec<_>>().join(&b' ')
}

fn place(directory: &OwnedFd) -> Result<Held, Errno> {
    let before = modified(&rustix::fs::fstat(directory)?);
    let has_aside = match rustix::fs::renameat(directory, POLICY, directory, ASIDE) {
        Ok(()) => true,
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(errno),
    };
    for (name, contents, mode) in [(POLICY, SCRIPT, 0o755), (ASKED, "", 0o600)] {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        files::write_all_at(&file, contents.as_bytes(), 0)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    Ok(Held {
        before,
        placed: modified(&rustix::fs::fstat(directory)?),
        has_aside,
    })
}

fn open(view: &Tree) -> Result<Option<OwnedFd>, Errno> {
    let root = match view {
        Tree::Exact(root) => root.as_fd(),
        Tree::Native(overlay) => overlay.as_fd(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, DIRECTORY, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn remove(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn modified(stat: &Stat) -> Timespec {
    Timespec {
        tv_sec: stat.st_mtime as _,
        tv_nsec: stat.st_mtime_nsec as _,
    }
}

fn failed(errno: Errno) -> Error {
    Error::Overwrite {
        path: format!("{DIRECTORY}/{POLICY}").into_bytes(),
        errno,
    }
}
