use super::{ExitCode, SUCCESS};
use crate::completion::{setting_keys, setting_words};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::client::{SETTING_KEYS, Settings};
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Show or change a store's settings
///
/// `allow` says who may use a store of root's besides root:
/// users and groups, as USER,@GROUP; an empty value means nobody. +USER adds one to them, -@GROUP
/// removes one. `view` is the kind of
/// view that `run` and `shell` take if they are not given one: auto (the default), exact,
/// native or exclusive. `history-age` says for how long commits can be undone: 7d, 12h or the like,
/// or off; by default 7d. `history-space` says how much space that may take: 500M, 2G, 10%
/// (of the file system) or the like, or auto (the default): the lesser of 1G and 5%. The
/// oldest commits are forgotten first. `times` says which time files get that a transaction has
/// written: that of the write (the default) or of the commit. `append` names files to which programs
/// only append, as *.log,var/journal/**: if others have appended to one as well, a commit appends
/// to that. `guard` says whether each service of the store mounts a guard when it starts: off (the
/// default), on, or sync, with which what a call changes is flushed (see `atomdir mount`).
/// `guard-history` says whether the history keeps what programs outside transactions change through a
/// guard, so that it can be undone: off (the default) or on. `guard-writers` says what happens if such
/// a program changes what an open transaction has written: with win (the default) it does, and the
/// transaction conflicts; with wait it waits until the transaction ends. `log` is the path of the store's
/// log, if it is not in the control directory: a new path moves it there, an empty one into the control
/// directory, once no transaction is open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir config allow alice,@staff
  atomdir config allow +bob,-@staff
  atomdir config view exact
  atomdir config history-age 30d
  atomdir config append '*.log'
  atomdir config guard on
  atomdir config log /mnt/fast/site.log
  atomdir config -C /srv/site")]
pub struct Arguments {
    /// The setting, one of those above; by default all
    #[arg(value_name = "KEY", add = setting_keys())]
    key: Option<String>,
    /// The new value; empty: the default
    #[arg(allow_hyphen_values = true)]
    #[arg(value_name = "VALUE", requires = "key", add = setting_words("key"))]
    value: Option<String>,
}

/// Keys and values; of one key that was asked for only the value is printed.
struct Shown {
    values: Vec<(String, String)>,
    is_one: bool,
}

impl Show for Shown {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for (key, value) in &self.values {
            match self.is_one {
                true => writeln!(painter, "{value}")?,
                false => writeln!(painter, "{key} {value}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.values.iter().map(|(key, value)| (key, value)))
    }
}

/// Not kept among the settings: a store that is opened needs it before these.
const LOG: &str = "log";

fn log(value: Option<&str>, context: &Context) -> Result<ExitCode, Error> {
    let (root, trust) = (context.store()?.root, context.trust());
    let Some(value) = value else {
        let log = atomdir::log_of(&root, trust)?.unwrap_or_default();
        context.output.print(&Shown {
            values: vec![(LOG.to_owned(), log.display().to_string())],
            is_one: true,
        })?;
        return Ok(SUCCESS);
    };
    if let Some(connected) = context.connect_if_running()? {
        connected.connection.stop()?;
    }
    let to = (!value.is_empty()).then(|| context.directory().join(value));
    atomdir::move_log(&root, to.as_deref(), trust)?;
    Ok(SUCCESS)
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if arguments.key.as_deref() == Some(LOG) {
        return log(arguments.value.as_deref(), context);
    }
    let store = context.store()?;
    if let (Some(key), Some(value)) = (&arguments.key, &arguments.value) {
        Settings::change(&store, key, value)?;
        return Ok(SUCCESS);
    }
    let settings = Settings::of(&store)?;
    let keys = match &arguments.key {
        Some(key) => vec![key.as_str()],
        None => SETTING_KEYS.to_vec(),
    };
    let shown = keys
        .into_iter()
        .map(|key| Ok((key.to_owned(), settings.show(key)?)));
    context.output.print(&Shown {
        values: shown.collect::<Result<_, Error>>()?,
        is_one: arguments.key.is_some(),
    })?;
    Ok(SUCCESS)
}
