use super::ExitCode;
use crate::arguments::number;
use crate::attempt::{
    self, Backoff, BeginArguments, Closed, Closing, DECIDE_LATER, EndArguments, EnterArguments,
    Finished, OnConflict, Outcome, Partners, SealArguments, StatusDescriptor, Terminal,
    ViewArguments, Wish,
};
use crate::changes::{ChangeList, Listing, Rights};
use crate::completion::commands;
use crate::context::{Connected, Context};
use crate::enter::Ended;
use crate::error::Error;
use crate::output::{escaped, to_json};
use atomdir::client::{BeginOptions, ViewChoice};
use atomdir::{Conflicts, Isolation, TransactionId};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::RawFd;
use std::time::Duration;

/// Run a command as a transaction: it commits if the command exits 0, else
/// nothing has happened
///
/// The command sees the store's files as they are now, under their own path
/// and in the same directory, and nobody else sees what it changes before the
/// commit. The exit code is the command's own, or 75 if there was a conflict.
/// Inside a transaction it is nested: its commit becomes part of the outer one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir run -C /srv/site -- ./upgrade.sh
  atomdir run --retry 10 --timeout 5m -- make install
  atomdir run --ask -- rm -r old")]
pub struct Arguments {
    #[command(flatten)]
    begin: BeginArguments,
    #[command(flatten)]
    end: EndArguments,
    #[command(flatten)]
    seal: SealArguments,
    /// Print the changes instead of committing them
    #[arg(long, conflicts_with_all = ["ask", "on_success", "on_error"])]
    dry_run: bool,
    /// Let the command commit what has changed so far, and go on: by `atomdir commit --so-far` in
    /// it, for example after each turn of an agent. Takes an exact view
    #[arg(long, conflicts_with_all = ["ask", "dry_run", "retry", "view", "exclusive"])]
    commit_within: bool,
    #[command(flatten)]
    view: ViewArguments,
    #[command(flatten)]
    enter: EnterArguments,
    /// After a conflict begin anew and run the command again, up to N times
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = number::<u32>)]
    retry: u32,
    /// Kill the command after T (10, 10s, 5m, 2h), abort, and exit 124
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    timeout: Option<Duration>,
    /// Write the outcome to descriptor N, as one line: committed SEQUENCE,
    /// aborted, kept TX, conflict TX, or failed CODE MESSAGE
    #[arg(long, value_name = "N", value_parser = number::<RawFd>)]
    status_fd: Option<RawFd>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments, add = commands("command"))]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let status = arguments.status_fd.map(StatusDescriptor::new).transpose()?;
    let mut run = Run {
        arguments,
        context,
        first: None,
        transaction: None,
        partners: Partners::default(),
    };
    let result = run.until_ended();
    let finished = Finished {
        transaction: run.transaction,
        exit_code: match &result {
            Ok((ended, _)) => ended.exit_code(),
            Err(error) => error.explain().exit_code,
        },
        result: result.as_ref().map(|(_, outcome)| outcome.clone()),
    };
    let printed = print(&finished, status.as_ref(), context);
    let exit_code = finished.exit_code;
    result.and(printed).and(Ok(exit_code))
}

/// The standard output is the command's, so JSON without a status descriptor
/// goes to standard error; there a failure is printed as by every verb.
fn print(
    finished: &Finished<'_>,
    status: Option<&StatusDescriptor>,
    context: &Context,
) -> Result<(), Error> {
    match (status, context.output.is_json()) {
        (Some(status), true) => status.write(&to_json(finished)),
        (Some(status), false) => status.write(&escaped(finished.to_string().as_bytes())),
        (None, true) if finished.result.is_ok() => {
            context.output.tell_json(finished);
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// Fails if such a transaction can only be committed as a whole.
fn refuse_only_whole(options: &BeginOptions) -> Result<(), Error> {
    let why = match (options.outer, options.isolation) {
        (Some(outer), _) => {
            format!("it is nested in transaction {outer}; `--in none` begins one that is not")
        }
        (None, Isolation::Serializable) => "it is serializable".to_owned(),
        (None, Isolation::Snapshot) => return Ok(()),
    };
    Err(Error::usage(format!(
        "--commit-within is not possible, as the transaction can only be committed as a whole: {why}"
    )))
}

struct Run<'a> {
    arguments: &'a Arguments,
    context: &'a Context,
    /// The one that was begun first: however often it is tried again, it is as old.
    first: Option<TransactionId>,
    /// The one that was begun last.
    transaction: Option<TransactionId>,
    /// The transactions of other stores, which are committed with it.
    partners: Partners,
}

impl Run<'_> {
    /// Refuses what only one store's transaction can do.
    fn refuse_alone(&self) -> Result<(), Error> {
        let Arguments { begin, end, .. } = self.arguments;
        let refused = [
            (end.ask, "--ask"),
            (self.arguments.commit_within, "--commit-within"),
            (self.arguments.seal.is_wanted(false), "a seal"),
            (end.terms.waits(), "--confirm"),
            (
                end.on_conflict == Some(OnConflict::Keep),
                "--on-conflict keep",
            ),
        ];
        match refused.iter().find(|(is_wanted, _)| *is_wanted) {
            Some((_, what)) => Err(attempt::not_in_several(what)),
            None => Partners::refuse_alone(begin),
        }
    }

    /// No transaction of several stores has committed.
    fn abort_all(&mut self, connected: &mut Connected) {
        self.partners.abort();
        if let Some(transaction) = self.transaction {
            // It may have ended with its service.
            let _ = connected.connection.abort(transaction);
        }
    }

    fn until_ended(&mut self) -> Result<(Ended, Outcome), Error> {
        let mut terminal = if self.arguments.end.ask {
            Some(Terminal::open(true, DECIDE_LATER)?)
        } else {
            None
        };
        if !self.context.others().is_empty() {
            self.refuse_alone()?;
        }
        let mut connected = self.context.connect()?;
        self.partners = Partners::connect(self.context, &connected)?;
        (self.context).note_other_store(&connected, self.arguments.begin.outer.is_some());
        let mut backoff = Backoff::new(self.arguments.retry);
        loop {
            let result = self.once(&mut connected, terminal.as_mut());
            let error = match result {
                Err(error) => error,
                ended => return ended,
            };
            let wait = if attempt::is_conflict(&error) {
                backoff.next()?
            } else {
                None
            };
            let Some(wait) = wait else {
                let end = &self.arguments.end;
                if !self.partners.is_empty() {
                    self.abort_all(&mut connected);
                    return Err(attempt::aborted(error));
                }
                return Err(attempt::end_uncommitted(&mut connected, error, end)?);
            };
            self.partners.abort();
            if let Some(transaction) = self.transaction {
                connected.connection.abort(transaction)?;
            }
            let left = backoff.tries_left();
            self.context
                .output
                .detail(format_args!("{error}; trying again, {left} tries after it"));
            std::thread::sleep(wait);
        }
    }

    fn once(
        &mut self,
        connected: &mut Connected,
        terminal: Option<&mut Terminal>,
    ) -> Result<(Ended, Outcome), Error> {
        let (arguments, context) = (self.arguments, self.context);
        let command = &arguments.command;
        let current = context.current(connected);
        let label = attempt::command_line(command);
        let is_shown = arguments.dry_run || arguments.end.ask;
        let sealed = arguments.seal.is_wanted(is_shown);
        let options = BeginOptions {
            first_try: self.first,
            sealed,
            commits_while_held: arguments.commit_within,
            view: match arguments.commit_within {
                true => ViewChoice::Exact,
                false => arguments.view.choice()?,
            },
            ..arguments.begin.options(label, false, current)
        };
        if arguments.commit_within {
            refuse_only_whole(&options)?;
        }
        let begun = attempt::begin_all(context, connected, &options, &mut self.partners)?;
        let (mut transaction, view, also) = begun;
        self.transaction = Some(transaction.id);
        (self.partners).link(&mut connected.connection, transaction.id)?;
        if let Some(age) = arguments.begin.max_age {
            connected.connection.abort_after(transaction.id, age)?;
            self.partners.abort_after(age)?;
        }
        let connection = &mut connected.connection;
        arguments.end.terms.set(connection, transaction.id, None)?;
        self.first.get_or_insert(transaction.id);
        let timeout = arguments.timeout;
        let sealing = match sealed {
            true => Some(arguments.seal.sealing(connected, &transaction)?),
            false => None,
        };
        let mut way = arguments.enter.way(sealing);
        self.partners.set_terms(&arguments.end.terms)?;
        let mut shown_on = match arguments.dry_run && std::io::stdout().is_terminal() {
            true => Terminal::open(sealed, DECIDE_LATER).ok(),
            false => None,
        };
        let inside = (&transaction, view);
        (way.also, way.heard) = (also, self.partners.heard());
        let ran = attempt::run_command(context, connected, inside, way, command, &[], timeout)?;
        let ended = ran.ended;
        let background = ran.background();
        let others = arguments.end.others.others();
        let wish = arguments.end.wish(ended, arguments.end.ask);
        if wish == Wish::Abort && !arguments.dry_run {
            ran.give_up(context, connected, transaction.id)?;
        } else {
            let closing = Closing {
                others,
                opened: arguments.dry_run || terminal.is_some(),
                stays_open: wish == Wish::Keep || terminal.is_some(),
            };
            let first = (&*connected, &transaction);
            let wish = if arguments.dry_run { Wish::Abort } else { wish };
            (self.partners).close(context, first, (&ran, &closing), wish)?;
            match ran.close(context, connected, transaction, closing)? {
                Closed::Exact(exact) => transaction = exact,
                Closed::InUse(error) => return attempt::left_open(context, error, (ended, wish)),
            }
        }
        if options.conflicts == Conflicts::Early && !arguments.dry_run {
            attempt::refuse_met(connected, transaction.id, ended)?;
        }
        let wish = if arguments.dry_run {
            attempt::freeze(context, &mut connected.connection, transaction.id, others)?;
            let lines = connected.connection.changes(transaction.id)?;
            let rights = Rights::find(connected, &transaction, &lines)?;
            let changes = ChangeList::with_rights(&lines, &rights);
            if let Some(terminal) = &mut shown_on {
                terminal.regain();
            }
            context
                .output
                .print(&Listing::new(transaction.id, changes))?;
            Wish::Abort
        } else {
            wish
        };
        let end = (ended, wish);
        if !self.partners.is_empty() {
            let first = (&mut *connected, &transaction);
            let outcome =
                attempt::conclude_jointly(context, first, &mut self.partners, end, others)?;
            attempt::background::report(context, &background, &outcome);
            return Ok((ended, outcome));
        }
        let outcome = attempt::conclude(context, connected, &transaction, end, others, terminal)?;
        attempt::background::report(context, &background, &outcome);
        Ok((ended, outcome))
    }
}
