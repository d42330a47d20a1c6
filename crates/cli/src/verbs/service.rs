mod run;

use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted, escaped, json, json::Text, quoted, time};
use atomdir::client::{ServiceStatus, describe_user};
use atomdir::{HeldHow, Holder};
use clap::{Args, Subcommand};
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Start, stop or look at the process that owns the store while it is in use
///
/// A store in use has one service. The first command of the store's owner or root that
/// needs it starts it, and it ends when the store has not been used for 30 s. Other users'
/// commands cannot start it: for them, start one that stays, with `service start`, or at
/// boot with `service run --idle never`. It ends with `service stop`. SIGTERM
/// ends it as well. Transactions that `begin`, `run --on-error keep` and the like leave open
/// survive that; the next service opens them again.
#[derive(Debug, Args)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
#[command(after_help = "Examples:
  atomdir service start -C /srv/site
  atomdir service status -C /srv/site
  atomdir service stop")]
pub struct Arguments {
    #[command(subcommand)]
    verb: ServiceVerb,
}

#[derive(Debug, Subcommand)]
enum ServiceVerb {
    /// Start it if it does not run, and have it stay
    Start(StartArguments),
    /// Run it in the foreground, as for systemd
    Run(run::Arguments),
    /// Show its process, age, open transactions and log, or that none runs
    Status,
    /// End it, unless transactions are open
    Stop(StopArguments),
}

#[derive(Debug, Args)]
struct StartArguments {
    /// End it after T (30s, 10m) without a transaction or a client, or `never`
    #[arg(long, value_name = "T", value_parser = idle_time, default_value = "never")]
    idle: IdleTime,
}

#[derive(Debug, Args)]
struct StopArguments {
    /// Abort open transactions, which drops their changes
    #[arg(long)]
    abort: bool,
    /// Keep open transactions for the next service, if all of them survive
    #[arg(long, conflicts_with = "abort")]
    keep: bool,
}

/// `None`: it never ends by itself.
#[derive(Debug, Clone, Copy)]
struct IdleTime(Option<Duration>);

fn idle_time(text: &str) -> Result<IdleTime, String> {
    match text {
        "never" => Ok(IdleTime(None)),
        text => crate::duration::parse(text).map(|time| IdleTime(Some(time))),
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    match &arguments.verb {
        ServiceVerb::Start(arguments) => start(arguments, context)?,
        ServiceVerb::Run(arguments) => run::serve(arguments, context)?,
        ServiceVerb::Status => status(context)?,
        ServiceVerb::Stop(arguments) => stop(arguments, context)?,
    }
    Ok(SUCCESS)
}

#[derive(Serialize)]
struct Started {
    process: u32,
    started: bool,
}

impl Show for Started {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let what = if self.started {
            "started"
        } else {
            "runs already"
        };
        writeln!(painter, "service {what}: process {}", self.process)
    }
}

fn start(arguments: &StartArguments, context: &Context) -> Result<(), Error> {
    let mut connection = context.connect()?.connection;
    connection.set_idle_time(arguments.idle.0)?;
    context.output.confirm(&Started {
        process: connection.service_status()?.process,
        started: connection.started(),
    })
}

struct Status(ServiceStatus);

impl Show for Status {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let status = &self.0;
        writeln!(painter, "store         {}", quoted(&status.store))?;
        writeln!(
            painter,
            "process       {}, of {}",
            status.process,
            describe_user(status.user)
        )?;
        writeln!(
            painter,
            "version       {}",
            escaped(status.version.as_bytes())
        )?;
        writeln!(painter, "age           {}", time::age(status.age_seconds))?;
        match &status.views {
            Ok(path) => {
                let way = way_of_requests(status);
                writeln!(painter, "views         {}, over {way}", quoted(path))?;
            }
            Err(failure) => {
                let failure = escaped(failure.to_string().as_bytes());
                writeln!(painter, "views         none: {failure}")?;
            }
        }
        if let Some(guard) = &status.guard {
            let flushes = format!("; {} flushes after changes", guard.flushes);
            let flushes = if guard.syncs { &flushes } else { "" };
            let waiting = counted(guard.waiting, "call");
            writeln!(
                painter,
                "guard         mounted; {waiting} waiting for locks{flushes}"
            )?;
        }
        let (open, connections) = (status.open_transactions, status.connections);
        writeln!(painter, "transactions  {open} open")?;
        writeln!(painter, "clients       {connections}")?;
        writeln!(painter, "ends          {}", when_it_ends(status))?;
        let limits = &status.limits;
        writeln!(
            painter,
            "limits        of each other user: {} transactions with {} changed objects, {} clients",
            limits.user_transactions_max,
            limits.user_changed_objects_max,
            limits.user_connections_max
        )?;
        writeln!(painter, "last commit   {}", status.sequence)?;
        writeln!(painter, "log           {} bytes", status.log_bytes)?;
        let history = super::prune::describe(status.history.as_ref());
        writeln!(painter, "history       {history}")?;
        for (commit, one) in &status.unconfirmed {
            let waits = super::log::unconfirmed(one);
            writeln!(painter, "unconfirmed   commit {commit}: {waits}")?;
        }
        if let Some(stalled) = &status.stalled {
            writeln!(painter, "stalled       {stalled}")?;
        }
        match &status.poisoned {
            Some(reason) => writeln!(
                painter,
                "takes no commits until `atomdir recover`: {}",
                escaped(reason.as_bytes())
            ),
            None => Ok(()),
        }
    }
}

fn when_it_ends(status: &ServiceStatus) -> String {
    match status.idle_ms {
        Some(idle_ms) => {
            let idle = time::age(idle_ms / 1000);
            format!("after {idle} without transactions and clients")
        }
        None => "not by itself".to_owned(),
    }
}

/// How the kernel's requests for views reach the service.
fn way_of_requests(status: &ServiceStatus) -> &'static str {
    if status.views_over_io_uring {
        "io_uring"
    } else {
        "/dev/fuse"
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    store: Text<'a>,
    process: u32,
    user: u32,
    version: &'a str,
    started: String,
    age_seconds: u64,
    views: Option<Text<'a>>,
    no_views_because: Option<&'a str>,
    views_over: Option<&'a str>,
    view_requests: u64,
    guard: Option<GuardJson>,
    connections: u64,
    open_transactions: u64,
    idle_seconds: Option<f64>,
    limits: LimitsJson,
    last_commit: u64,
    log_bytes: u64,
    history: Option<json::History>,
    poisoned: Option<&'a str>,
    stalled: Option<&'a str>,
}

#[derive(Serialize)]
struct GuardJson {
    sync: bool,
    flushes: u64,
    waiting: u64,
}

#[derive(Serialize)]
struct LimitsJson {
    connections: u64,
    transactions: u64,
    user_connections: u64,
    user_transactions: u64,
    user_changed_objects: u64,
    connection_idle_seconds: u64,
    descriptors: u64,
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = &self.0;
        StatusJson {
            store: Text(&status.store),
            process: status.process,
            user: status.user,
            version: &status.version,
            started: time::precise(status.started),
            age_seconds: status.age_seconds,
            views: status.views.as_deref().ok().map(Text),
            no_views_because: status.views.as_ref().err().map(|failure| &*failure.message),
            views_over: status.views.as_ref().ok().map(|_| way_of_requests(status)),
            view_requests: status.view_requests,
            guard: status.guard.map(|guard| GuardJson {
                sync: guard.syncs,
                flushes: guard.flushes,
                waiting: guard.waiting,
            }),
            connections: status.connections,
            open_transactions: status.open_transactions,
            idle_seconds: status.idle_ms.map(|idle_ms| idle_ms as f64 / 1000.0),
            limits: LimitsJson {
                connections: status.limits.connections_max,
                transactions: status.limits.transactions_max,
                user_connections: status.limits.user_connections_max,
                user_transactions: status.limits.user_transactions_max,
                user_changed_objects: status.limits.user_changed_objects_max,
                connection_idle_seconds: status.limits.connection_idle_seconds,
                descriptors: status.limits.descriptors_max,
            },
            last_commit: status.sequence.0,
            log_bytes: status.log_bytes,
            history: status.history.map(json::History::from),
            poisoned: status.poisoned.as_deref(),
            stalled: status.stalled.as_deref(),
        }
        .serialize(serializer)
    }
}

fn status(context: &Context) -> Result<(), Error> {
    let Some(mut connected) = context.connect_if_running()? else {
        let store = context.store()?;
        let has_survivors = store.may_have_survivors();
        let root = store.root.as_os_str().as_bytes();
        return context.output.print(&AtRest {
            store: Text(root),
            process: None,
            open_in: store.holder().map(OpenIn::from),
            may_have_transactions: has_survivors,
        });
    };
    let status = connected.connection.service_status()?;
    context.output.print(&Status(status))
}

/// A store without a service.
#[derive(Serialize)]
struct AtRest<'a> {
    store: Text<'a>,
    process: Option<u32>,
    /// The program that has the store open by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_in: Option<OpenIn>,
    /// Some may have survived the last service.
    may_have_transactions: bool,
}

#[derive(Serialize)]
struct OpenIn {
    process: u32,
    program: String,
    /// Once no transaction and no file of the store is open in it.
    hands_over: bool,
    #[serde(skip)]
    how: HeldHow,
}

impl From<(Holder, HeldHow)> for OpenIn {
    fn from((holder, how): (Holder, HeldHow)) -> OpenIn {
        OpenIn {
            process: holder.process,
            program: holder.program,
            hands_over: how == HeldHow::UntilIdle,
            how,
        }
    }
}

impl Show for AtRest<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "store         {}", quoted(self.store.0))?;
        match &self.open_in {
            None => writeln!(
                painter,
                "process       none: the next command that needs a service starts it"
            )?,
            Some(open_in) => {
                let program = escaped(open_in.program.as_bytes());
                let when = match open_in.how {
                    HeldHow::UntilIdle => {
                        "hands it over to a service once nothing of it is open there"
                    }
                    HeldHow::Stopped => "is stopped, so it keeps it until it goes on (SIGCONT)",
                    HeldHow::ByChild => {
                        "keeps it until it ends: a program forked it that has ended"
                    }
                    _ => "keeps it until it closes it or hands it over",
                };
                writeln!(
                    painter,
                    "process       none: process {} ({program}) has the store open and {when}",
                    open_in.process
                )?;
            }
        }
        match self.may_have_transactions {
            true => writeln!(
                painter,
                "transactions  some may have survived the last service"
            ),
            false => writeln!(painter, "transactions  none"),
        }
    }
}

#[derive(Serialize)]
struct Stopped {
    stopped: bool,
    transactions_aborted: u64,
    transactions_kept: u64,
}

impl Show for Stopped {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        if !self.stopped {
            return writeln!(painter, "no service runs");
        }
        let aborted = counted(self.transactions_aborted, "transaction");
        match self.transactions_kept {
            0 => writeln!(painter, "service stopped, {aborted} aborted"),
            kept => writeln!(painter, "service stopped, {aborted} aborted, {kept} kept"),
        }
    }
}

/// A service that does not run is stopped.
fn stop(arguments: &StopArguments, context: &Context) -> Result<(), Error> {
    let mut running = context.connect_if_running()?;
    let status = running.as_mut().map(|one| one.connection.service_status());
    let unconfirmed = status
        .transpose()?
        .map_or_else(Vec::new, |status| status.unconfirmed);
    let report = match running {
        None => None,
        Some(connected) if arguments.abort => Some(connected.connection.stop_and_abort()?),
        Some(connected) if arguments.keep => Some(connected.connection.stop_and_keep()?),
        Some(connected) => Some(connected.connection.stop()?),
    };
    for (commit, one) in unconfirmed.iter().filter(|(_, one)| one.refused.is_none()) {
        context.output.note(format_args!(
            "commit {commit} waits to be confirmed: after {} it takes itself back when the store is \
             next used",
            time::readable(one.due)
        ));
    }
    context.output.confirm(&Stopped {
        stopped: report.is_some(),
        transactions_aborted: report.map_or(0, |report| report.transactions_aborted),
        transactions_kept: report.map_or(0, |report| report.transactions_kept),
    })
}
