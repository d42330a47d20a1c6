//! The whole system as several stores: its directories that packages write, each a store of its own,
//! are changed in one transaction.
//!
//! The commits of such a transaction have the same mark at the end of their labels. That is how they are
//! found again in the logs of their stores.

mod commits;
mod held;
mod log;
mod old_files;
mod packages;
mod recover;
mod report;
mod run;

pub use commits::{Joined, connect, find};
pub use log::log;
pub use packages::{PackagesInUse, PackagesLocked};
pub use recover::{in_doubt, recover};
pub use report::report;
pub use run::OfSystem;

use crate::context::Context;
use crate::error::Error;
use atomdir::StoreLocation;
use clap::{Args, ValueHint};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The directories that packages write, those with most changes first. The last ones are links into `usr`
/// on most systems.
const DIRECTORIES: [&str; 11] = [
    "usr", "var", "etc", "opt", BOOT, "bin", "sbin", "lib", "lib32", "lib64", "libx32",
];

/// Its file system is often one that cannot hold a store. Then commands may not change it, so that no
/// kernel stays there whose modules were aborted.
const BOOT: &str = "boot";

#[derive(Debug, Clone, Default, Args)]
pub struct SystemArguments {
    /// Act on the whole system: on /usr, /var, /etc and /opt, each a store, in one transaction
    #[arg(long)]
    pub system: bool,
    /// With --system: on the system below DIR, instead of the one that runs
    #[arg(long, value_name = "DIR", requires = "system", value_hint = ValueHint::DirPath)]
    root: Option<PathBuf>,
}

impl SystemArguments {
    /// The directories that are stores, or are to become stores.
    pub fn directories(&self, context: &Context) -> Result<Vec<PathBuf>, Error> {
        let root = self.root(context);
        let found = DIRECTORIES.iter().map(|name| {
            let path = root.join(name);
            match rustix::fs::lstat(&path) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(Some(path)),
                Ok(_) | Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(Error::Directory {
                    directory: path,
                    errno,
                }),
            }
        });
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let found: Vec<PathBuf> = found.into_iter().flatten().collect();
        match found.is_empty() {
            true => Err(Error::usage(format!(
                "there is no system in '{}': it has no directory of these names: {}",
                root.display(),
                DIRECTORIES.join(", ")
            ))),
            false => Ok(found),
        }
    }

    /// The stores of the system. Each of its directories must be one, so that nothing is left out of a
    /// transaction unnoticed.
    pub fn stores(&self, context: &Context) -> Result<Vec<StoreLocation>, Error> {
        let mut directories = self.directories(context)?;
        directories.retain(|path| !may_be_outside(path) || context.store_at(path).is_ok());
        let stores = directories.iter().map(|directory| {
            let store = context.store_at(directory)?;
            match store.start.as_os_str().is_empty() {
                true => Ok(store),
                false => Err(Error::Usage {
                    message: format!(
                        "'{}' is no store of its own, but a part of the store '{}'",
                        directory.display(),
                        store.root.display()
                    ),
                    hint: Some("`--system` needs a store in each directory of the system".into()),
                }),
            }
        });
        stores.collect()
    }

    /// The directories of the system that are no stores, and which no transaction may change.
    pub fn outside(&self, context: &Context, roots: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
        let mut outside = self.directories(context)?;
        outside.retain(|path| !roots.contains(path));
        Ok(outside)
    }

    fn root(&self, context: &Context) -> PathBuf {
        match &self.root {
            None => PathBuf::from("/"),
            Some(root) => context.directory().join(root),
        }
    }

    /// The context for a verb that acts in all of these stores; `None`: in one store only.
    pub fn context(&self, context: &Context) -> Result<Option<Context>, Error> {
        if !self.system {
            return Ok(None);
        }
        let stores = self.stores(context)?;
        Ok(context.of_stores(stores.into_iter().map(|store| store.root)))
    }
}

/// Whether the system goes without a store there.
pub fn may_be_outside(directory: &Path) -> bool {
    directory.ends_with(BOOT)
}

/// What the commits of one transaction have in common. Its first digit is a letter, so that it is no
/// commit's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u32);

const LETTER: u32 = 0xa000_0000;
const MARK_START: &[u8] = b" [system ";
const MARK_END: &[u8] = b"]";

impl Mark {
    pub fn new() -> Result<Mark, Error> {
        let mut bytes = [0; 4];
        getrandom(&mut bytes, GetRandomFlags::empty()).map_err(Error::Random)?;
        Ok(Mark(u32::from_le_bytes(bytes) | LETTER))
    }

    pub fn parse(text: &str) -> Option<Mark> {
        let is_mark = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(text, 16).ok()?;
        (is_mark && number & LETTER == LETTER).then_some(Mark(number))
    }

    /// The label and the mark of a marked commit.
    pub fn split(label: &[u8]) -> Option<(&[u8], Mark)> {
        let rest = label.strip_suffix(MARK_END)?;
        let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        let mark = Mark::parse(std::str::from_utf8(digits).ok()?)?;
        Some((rest.strip_suffix(MARK_START)?, mark))
    }

    pub fn added_to(self, label: &OsStr) -> OsString {
        let mut label = label.to_owned();
        label.push(self.text());
        label
    }

    fn text(self) -> String {
        format!(" [system {self}]")
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:08x}", self.0)
    }
}

/// A new label for a commit. One of several stores stays recognizable.
pub fn keeping_mark(old: &[u8], new: &[u8]) -> Vec<u8> {
    match (Mark::split(old), Mark::split(new)) {
        (Some((_, mark)), None) => [new, mark.text().as_bytes()].concat(),
        _ => new.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_mark_is_found_at_the_end_of_a_label() {
        let mark = Mark(0xa000_12ab);
        let label = mark.added_to(OsStr::new("apt upgrade [x]"));
        assert_eq!(label, "apt upgrade [x] [system a00012ab]");
        let found = Mark::split(label.as_bytes());
        assert_eq!(found, Some((&b"apt upgrade [x]"[..], mark)));
        for unmarked in [
            "",
            "]",
            "[system a00012ab]",
            "x [system 12ab]",
            "x [system 000012ab]",
        ] {
            assert_eq!(Mark::split(unmarked.as_bytes()), None, "{unmarked}");
        }
        assert_eq!(
            keeping_mark(label.as_bytes(), b"new"),
            b"new [system a00012ab]"
        );
        assert_eq!(keeping_mark(b"old", b"new"), b"new");
    }
}
