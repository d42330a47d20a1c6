use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::git;
use crate::output::{Painter, Show, json::Text, quoted};
use crate::system::{SystemArguments, may_be_outside};
use atomdir::client::{ALLOW, HISTORY_AGE, Settings};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Make a directory a store
///
/// Its files stay where they are and as they are; the control directory
/// .atomdir is added. Doing it again is harmless.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  atomdir init /srv/site
  atomdir init --system")]
pub struct Arguments {
    /// The directory; by default the current one
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Keep the control directory at PATH, on the same file system
    ///
    /// Programs that watch or mirror the store then see no files of Atomdir's change in it.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    control: Option<PathBuf>,
    /// Keep the log, and only it, in the new file PATH, on another disk or file system
    ///
    /// A durable commit then waits for that disk's flush, and for the store's own only if it has
    /// large or many files. Without the log the store does not open: see `recover --without-log`.
    /// `atomdir config log` shows and moves it.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with_all = ["adopt", "copy"])]
    log: Option<PathBuf>,
    /// Let these users and groups use it, too: a store of root's; see `config`
    #[arg(long, value_name = "USER,@GROUP")]
    allow: Option<String>,
    /// Make a copy of a store one of its own: a restored backup, a clone, an unpacked archive
    ///
    /// Of its history it keeps what matches the copy's files. It admits nobody whom
    /// the original had admitted. Do it only if you trust whoever made the copy.
    #[arg(long, conflicts_with = "control")]
    adopt: bool,
    /// Replace all that is in it by copies: on an overlay, as in a container's own root
    ///
    /// A store can hold only what is in the overlay's upper layer. The copies need space, and
    /// nothing may use the directory meanwhile. If it is interrupted, do it again.
    #[arg(long, conflicts_with_all = ["control", "adopt"])]
    copy: bool,
    /// Keep nothing of what commits replace, so that none can be undone
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    system: SystemArguments,
}

#[derive(Serialize)]
struct Initialized<'a> {
    store: Text<'a>,
    control: Text<'a>,
    created: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted: Option<Adopted>,
}

#[derive(Serialize)]
struct Adopted {
    commits: u64,
    objects_found: u64,
    objects_missing: u64,
}

impl Show for Initialized<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let root = quoted(self.store.0);
        if let Some(adopted) = &self.adopted {
            writeln!(
                painter,
                "{root} is now a store of its own; its history of commits that can be undone: {}; \
                 of what these changed, found {}, not found {}",
                adopted.commits, adopted.objects_found, adopted.objects_missing
            )
        } else if self.created {
            writeln!(painter, "{root} is now a store")
        } else {
            writeln!(painter, "{root} was a store already")
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if !arguments.system.system {
        return init(arguments, context);
    }
    if arguments.store.is_some() || arguments.control.is_some() || arguments.log.is_some() {
        return Err(Error::usage(
            "with `--system`, each store has its usual directory, control directory and log",
        ));
    }
    for directory in arguments.system.directories(context)? {
        let one = Arguments {
            store: Some(directory.clone()),
            ..arguments.clone()
        };
        match init(&one, context) {
            Err(error) if may_be_outside(&directory) => context.output.note(format_args!(
                "'{}' is no store, and `run --system` keeps it as it is: {error}",
                directory.display()
            )),
            made => made.map(|_| ())?,
        }
    }
    Ok(SUCCESS)
}

fn init(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let directory = match &arguments.store {
        Some(directory) => context.directory().join(directory),
        None => context.directory().to_owned(),
    };
    let control = arguments
        .control
        .as_ref()
        .map(|path| context.directory().join(path));
    let (store, created, adopted) = match (arguments.adopt, arguments.copy) {
        (true, _) => {
            let outcome = atomdir::adopt_with(&directory, context.trust())?;
            let adopted = outcome.adoption.map(|adoption| Adopted {
                commits: adoption.commits,
                objects_found: adoption.objects_found,
                objects_missing: adoption.objects_missing,
            });
            (outcome.store, false, adopted)
        }
        (false, true) => {
            let outcome = atomdir::init_copying(&directory, context.trust())?;
            (outcome.store, outcome.created, None)
        }
        (false, false) => {
            let (control, trust) = (control.as_deref(), context.trust());
            let outcome = match &arguments.log {
                Some(log) => {
                    let log = context.directory().join(log);
                    atomdir::init_with_log(&directory, control, &log, trust)?
                }
                None => atomdir::init_with(&directory, control, trust)?,
            };
            (outcome.store, outcome.created, None)
        }
    };
    if let Some(allow) = &arguments.allow {
        Settings::change(&store, ALLOW, allow)?;
    }
    if arguments.no_history {
        Settings::change(&store, HISTORY_AGE, "off")?;
    }
    if control.is_some() && git::is_in_work_tree(&store.root) {
        context.output.note(
            "git sees the file .atomdir: add it to .git/info/exclude, or `git clean` takes it away",
        );
    }
    if created {
        let settled = git::settle(&store.root);
        if !settled.is_empty() {
            context.output.note(format_args!(
                "git compares files here by size and time of modification from now on ({}), since \
                 commits give them other inode numbers",
                settled.join(", ")
            ));
        }
    }
    if created && control.is_none() && !arguments.system.system {
        context.output.note(
            "it has the directory .atomdir now: tell programs that watch it or make copies of it to \
             leave that out, or have it elsewhere (`init --control`)",
        );
    }
    context.output.confirm(&Initialized {
        store: Text(store.root.as_os_str().as_bytes()),
        control: Text(store.control.as_os_str().as_bytes()),
        created,
        adopted,
    })?;
    Ok(SUCCESS)
}
