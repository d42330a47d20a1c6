use super::ExitCode;
use super::undo::{Report, Wish, add_paths, bring_back, showing_progress};
use crate::changes::paths_in_store;
use crate::completion::commits;
use crate::context::Context;
use crate::error::{Error, conflict_line};
use crate::when::{self, When};
use atomdir::Sequence;
use atomdir::client::Restore;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bring files back as they were after a commit
///
/// Everything at and below PATH becomes as it was just after that commit. Existing files are
/// replaced, no matter who changed them, and files that did not exist then are removed. Nothing
/// else changes. It is a transaction of its own, and a commit that can be undone. Only the store's
/// owner and root can restore files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir restore 41 -- etc/site.conf
  atomdir restore --dry-run 2h -- etc")]
pub struct Arguments {
    /// A commit, as `atomdir log` lists it; 0: before the first. Or a time: how long ago (10m, 2h,
    /// 3d), a local date and time, or one as RFC 3339 has it
    #[arg(value_name = "COMMIT|TIME", value_parser = when::parse, add = commits())]
    when: When,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "keep")]
    dry_run: bool,
    /// Do not commit yet: print the transaction's id and its view's path, as `begin` does
    #[arg(long)]
    keep: bool,
    /// What the log says of it; by default this command line
    #[arg(short, long, value_name = "TEXT")]
    message: Option<OsString>,
    /// The files and directories; `.` for all here
    #[arg(value_name = "PATH", required = true, last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

impl Arguments {
    fn label(&self, commit: Sequence) -> Vec<u8> {
        if let Some(message) = &self.message {
            return message.as_bytes().to_vec();
        }
        let mut label = format!("restore {commit}").into_bytes();
        add_paths(&mut label, &self.paths);
        label
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let commit = arguments.when.commit(&mut connected.connection)?;
    let restore = Restore {
        commit,
        paths: paths_in_store(&connected, &arguments.paths)?,
    };
    let wish = Wish {
        label: arguments.label(commit),
        keep: arguments.keep,
        dry_run: arguments.dry_run,
    };
    bring_back(context, connected, wish, |connection, options| {
        let begun = showing_progress(context, |progress| {
            connection.restore(restore, options, progress)
        });
        let (transaction, as_now) = begun.map_err(Error::Undo)?;
        for conflict in &as_now {
            let line = conflict_line(conflict);
            context.output.warn(format_args!(
                "how it was after commit {commit} is not known, so it stays as it is now: {line}"
            ));
        }
        Ok((transaction, Report::default()))
    })
}
