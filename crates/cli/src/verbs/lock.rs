use super::{ExitCode, SUCCESS};
use crate::changes::path_in_store;
use crate::completion::transactions_and_paths;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, counted, json::Text};
use atomdir::client::{Allow, LOCK_ALLOW, LockOptions};
use atomdir::{LockMode, LockScope, TransactionId};
use clap::{Args, ValueHint};
use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lock files or directories for a transaction, until it ends
///
/// While a lock is held, no other transaction can commit a change to what it
/// covers, and those that ask for a lock on it wait. An exclusive lock needs
/// the right to write what is locked, a shared one the right to read it. A path
/// that names nothing is locked as a name. Without TX: the current transaction,
/// or the only one open.
///
/// With --allow nothing is locked. It says who may lock files and directories without the
/// right to read or write them: users and groups, as USER,@GROUP; +USER adds one, -@GROUP
/// removes one, and an empty value removes all. Whoever may write a file can say so.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir lock 12 index.html
  atomdir lock --shared --subtree --timeout 10s 12 docs
  atomdir lock --range 0-4096 --no-wait 12 table.db
  atomdir lock --allow +alice,@staff index.html

A path that is a number is written ./12. The exit code is 75 if others hold
the lock for too long, if they wait for this transaction in turn, or if what is
to be locked was changed since the transaction began.")]
pub struct Arguments {
    /// Others may lock it as well, but nobody may change it
    #[arg(long, conflicts_with = "exclusive")]
    shared: bool,
    /// Nobody else may lock or change it (this is the default)
    #[arg(long)]
    exclusive: bool,
    /// Only bytes A up to, not including, B, in whole pages of 4096
    #[arg(long, value_name = "A-B", value_parser = range, conflicts_with = "subtree")]
    range: Option<LockScope>,
    /// All that is below a directory as well
    #[arg(long)]
    subtree: bool,
    /// Wait no longer than T (10, 10s, 5m, 2h)
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    timeout: Option<Duration>,
    /// End the locks after T, if the transaction is still open
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    max_age: Option<Duration>,
    /// Do not wait
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Say who else may lock the paths
    #[arg(long, value_name = "WHO", allow_hyphen_values = true, conflicts_with_all = ["shared",
        "exclusive", "range", "subtree", "timeout", "max_age", "no_wait"])]
    allow: Option<String>,
    #[command(flatten)]
    subject: Subject,
}

/// The transaction and the paths that `lock` and `unlock` act on.
#[derive(Debug, Args)]
pub struct Subject {
    /// The transaction, if the first is a number, and the paths
    #[arg(value_name = "[TX] PATH", required = true, value_hint = ValueHint::AnyPath)]
    #[arg(add = transactions_and_paths("words"))]
    words: Vec<PathBuf>,
}

impl Subject {
    fn transaction(&self) -> Option<TransactionId> {
        let first = self.words.first()?.to_str()?;
        first.parse().ok().map(TransactionId)
    }

    pub fn resolve(
        &self,
        context: &Context,
    ) -> Result<(Connected, TransactionId, Vec<Vec<u8>>), Error> {
        let named = self.transaction();
        let (connected, transaction) = context.connect_to(named)?;
        let paths = &self.words[usize::from(named.is_some())..];
        let paths = paths.iter().map(|path| {
            let path = connected.out_of_view(path);
            let path = path_in_store(&connected.root, &connected.start, &path)?;
            Ok(path.as_os_str().as_bytes().to_vec())
        });
        let paths = paths.collect::<Result<_, Error>>()?;
        Ok((connected, transaction, paths))
    }
}

#[derive(Serialize)]
struct Locked<'a> {
    transaction: u64,
    mode: &'static str,
    locked: Vec<Text<'a>>,
}

impl Show for Locked<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let paths = counted(self.locked.len() as u64, "path");
        writeln!(painter, "transaction {}: {paths} locked", self.transaction)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if let Some(who) = &arguments.allow {
        for path in &arguments.subject.words {
            let failed = |errno| Error::AllowLock {
                path: path.clone(),
                errno,
            };
            let old = allowed(path).map_err(failed)?;
            let new = Allow::parse(&old)
                .unwrap_or_default()
                .changed(who)?
                .encode();
            allow(path, &new).map_err(failed)?;
        }
        return Ok(SUCCESS);
    }
    let (mut connected, transaction, paths) = arguments.subject.resolve(context)?;
    if paths.is_empty() {
        return Err(Error::usage("name the paths to lock"));
    }
    let mode = if arguments.shared {
        LockMode::Shared
    } else {
        LockMode::Exclusive
    };
    let options = LockOptions {
        mode,
        scope: match (arguments.range, arguments.subtree) {
            (Some(range), _) => range,
            (None, true) => LockScope::Subtree,
            (None, false) => LockScope::Object,
        },
        wait: if arguments.no_wait {
            Some(Duration::ZERO)
        } else {
            arguments.timeout
        },
        max_age: arguments.max_age,
    };
    connected
        .connection
        .lock(transaction, &paths, &options)
        .map_err(|source| Error::Commit {
            transaction,
            source,
            open: true,
        })?;
    context.output.confirm(&Locked {
        transaction: transaction.0,
        mode: crate::output::lock_mode_word(mode),
        locked: paths.iter().map(|path| Text(path)).collect(),
    })?;
    Ok(SUCCESS)
}

/// The attribute of the object itself: symbolic links have none, and are not followed.
fn allowed(path: &Path) -> Result<String, Errno> {
    let mut value = vec![0; 65_536];
    match lgetxattr(path, LOCK_ALLOW, &mut value[..]) {
        Ok(length) => Ok(String::from_utf8_lossy(&value[..length]).into_owned()),
        Err(Errno::NODATA) => Ok(String::new()),
        Err(errno) => Err(errno),
    }
}

fn allow(path: &Path, list: &str) -> Result<(), Errno> {
    if !list.is_empty() {
        return lsetxattr(path, LOCK_ALLOW, list.as_bytes(), XattrFlags::empty());
    }
    match lremovexattr(path, LOCK_ALLOW) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

/// `A-B`, or `A-` for all from A on.
fn range(text: &str) -> Result<LockScope, String> {
    let wrong = || "a range is two numbers of bytes, as in 0-4096, or one, as in 4096-".to_owned();
    let (start, end) = text.split_once('-').ok_or_else(wrong)?;
    let start: u64 = start.parse().map_err(|_| wrong())?;
    let end = match end {
        "" => u64::MAX,
        end => end.parse().map_err(|_| wrong())?,
    };
    if start >= end {
        return Err("a range ends after it starts".to_owned());
    }
    Ok(LockScope::Bytes { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_and_may_have_no_end() {
        let bytes = |start, end| Ok(LockScope::Bytes { start, end });
        assert_eq!(range("0-4096"), bytes(0, 4096));
        assert_eq!(range("7-"), bytes(7, u64::MAX));
        for wrong in ["", "-", "5", "5-5", "9-3", "-4", "a-b", "1-2-3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
