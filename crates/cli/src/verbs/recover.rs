use super::{ExitCode, SUCCESS};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::inspection::{Inspected, look};
use crate::output::{Painter, Show, Style, counted, escaped, json};
use crate::system::{self, SystemArguments};
use atomdir::hosting::with_remedy;
use atomdir_service::Inspection;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Bring the store to the state of its last commit
///
/// After a crash this happens by itself when the store is next used; this verb
/// does it now and reports what was recovered. A store that takes no more
/// commits because a write has failed is opened anew.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir recover -C /srv/site
  atomdir recover --dry-run || echo damaged")]
pub struct Arguments {
    /// Only report what recovery would do, and what is damaged; change nothing
    #[arg(long, conflicts_with = "system")]
    dry_run: bool,
    /// Give up the log, if it is on another file system and lost, and what only it knows
    ///
    /// The base stays as it is: it has every commit up to the last checkpoint, and of later
    /// ones perhaps a part. Open transactions end. The store then has an empty log in its control
    /// directory. `recover --dry-run` says what is lost.
    #[arg(long, conflicts_with_all = ["dry_run", "system"])]
    without_log: bool,
    #[command(flatten)]
    system: SystemArguments,
}

#[derive(Serialize)]
struct Report {
    /// Whether the service was started for it; else the store was in use
    /// already, and the rest tells of when that began.
    recovered_now: bool,
    commits_replayed: u64,
    bytes_replayed: u64,
    transactions_discarded: u64,
    torn_tail_bytes: u64,
}

impl Show for Report {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        if !self.recovered_now {
            writeln!(
                painter,
                "the store is in use and sound; when its service started:"
            )?;
        }
        let commits = counted(self.commits_replayed, "commit");
        writeln!(painter, "{commits} replayed, {} bytes", self.bytes_replayed)?;
        let transactions = counted(self.transactions_discarded, "unfinished transaction");
        writeln!(painter, "{transactions} discarded")?;
        if self.torn_tail_bytes > 0 {
            let bytes = self.torn_tail_bytes;
            writeln!(
                painter,
                "{bytes} bytes of a commit that was never finished dropped"
            )?;
        }
        Ok(())
    }
}

/// The report of `--dry-run`.
#[derive(Serialize)]
struct Plan<'a> {
    /// The store is open, and was recovered when it was opened.
    in_use: bool,
    /// Why a store in use takes no more commits until it is opened anew.
    poisoned: Option<&'a str>,
    damage: Vec<Damage<'a>>,
    commits: Vec<json::Commit<'a>>,
    log_bytes: u64,
    torn_tail: Option<TornTail>,
    transactions_unfinished: u64,
    leftovers: u64,
}

#[derive(Serialize)]
struct Damage<'a> {
    file: &'a str,
    offset: Option<u64>,
    message: String,
}

#[derive(Serialize)]
struct TornTail {
    offset: u64,
    bytes: u64,
}

impl<'a> Plan<'a> {
    fn in_use(poisoned: Option<&'a str>) -> Plan<'a> {
        Plan {
            in_use: true,
            poisoned,
            damage: Vec::new(),
            commits: Vec::new(),
            log_bytes: 0,
            torn_tail: None,
            transactions_unfinished: 0,
            leftovers: 0,
        }
    }

    fn at_rest(found: &'a Inspection) -> Plan<'a> {
        let damage = found.damage.iter().map(|damage| Damage {
            file: damage.file,
            offset: damage.offset,
            message: with_remedy(&damage.error),
        });
        Plan {
            in_use: false,
            poisoned: None,
            damage: damage.collect(),
            commits: found.commits.iter().map(json::Commit::from).collect(),
            log_bytes: found.log_bytes,
            torn_tail: found.torn_tail.map(|tail| TornTail {
                offset: tail.offset,
                bytes: tail.bytes,
            }),
            transactions_unfinished: found.transactions_unfinished,
            leftovers: found.leftovers,
        }
    }
}

impl Show for Plan<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        match (self.in_use, self.poisoned) {
            (false, _) => {}
            (true, None) => return writeln!(painter, "the store is in use and sound"),
            (true, Some(reason)) => {
                return writeln!(
                    painter,
                    "would open the store anew: {}",
                    escaped(reason.as_bytes())
                );
            }
        }
        if !self.damage.is_empty() {
            for damage in &self.damage {
                painter.paint(Style::Failure, "damaged: ")?;
                writeln!(painter, "{}", escaped(damage.message.as_bytes()))?;
            }
            return writeln!(painter, "nothing would be changed");
        }
        let commits = counted(self.commits.len() as u64, "commit");
        writeln!(
            painter,
            "{commits} to be replayed, {} bytes",
            self.log_bytes
        )?;
        for commit in &self.commits {
            painter.paint(Style::Heading, format!("{:>6}", commit.commit))?;
            let changes = counted(commit.changes_count, "change");
            let (time, label) = (&commit.time, escaped(commit.label.0));
            writeln!(painter, "  {time}  {changes:>12}  {label}")?;
        }
        if let Some(TornTail { offset, bytes }) = self.torn_tail {
            writeln!(
                painter,
                "{bytes} bytes of a commit that was never finished to be dropped, \
                 from byte {offset} of the log on"
            )?;
        }
        let transactions = counted(self.transactions_unfinished, "unfinished transaction");
        writeln!(painter, "{transactions} to be discarded")?;
        let leftovers = counted(self.leftovers, "leftover");
        writeln!(painter, "{leftovers} of staging and limbo to be removed")
    }
}

fn dry_run(context: &Context) -> Result<ExitCode, Error> {
    let found = match look(context)? {
        Inspected::InUse(mut connected) => {
            let status = connected.connection.service_status()?;
            let plan = Plan::in_use(status.poisoned.as_deref());
            context.output.print(&plan)?;
            return Ok(SUCCESS);
        }
        Inspected::AtRest(found) => found,
    };
    context.output.print(&Plan::at_rest(&found))?;
    match found.damage.len() as u64 {
        0 => Ok(SUCCESS),
        count => Err(Error::Unsound {
            problems: counted(count, "problem"),
        }),
    }
}

/// Ends a service that may still have the log open, and gives the log up.
fn give_up_log(context: &Context) -> Result<(), Error> {
    if let Some(connected) = context.connect_if_running()? {
        connected.connection.stop_and_abort()?;
    }
    let note = match atomdir::give_up_log(&context.store()?.root, context.trust())? {
        Some(lost) => format!("the log is given up: {lost}"),
        None => "the log is in the control directory, and is not given up".to_owned(),
    };
    context.output.note(note);
    Ok(())
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if let Some(context) = arguments.system.context(context)? {
        system::recover(&context)?;
        return Ok(SUCCESS);
    }
    if arguments.dry_run {
        return dry_run(context);
    }
    if arguments.without_log {
        give_up_log(context)?;
    }
    let mut connected = context.connect()?;
    let mut status = connected.connection.service_status()?;
    if let Some(reason) = &status.poisoned {
        context
            .output
            .note(format_args!("opening the store anew: {reason}"));
        let Connected { connection, .. } = connected;
        connection.stop_and_abort()?;
        connected = context.connect()?;
        status = connected.connection.service_status()?;
    }
    let recovery = status.recovery;
    context.output.print(&Report {
        recovered_now: connected.connection.started(),
        commits_replayed: recovery.commits_replayed,
        bytes_replayed: recovery.bytes_replayed,
        transactions_discarded: recovery.transactions_discarded,
        torn_tail_bytes: recovery.torn_tail_bytes,
    })?;
    Ok(SUCCESS)
}
