use super::ExitCode;
use crate::arguments::transaction_id;
use crate::attempt::{
    self, BeginArguments, Closed, Closing, DECIDE_LATER, EndArguments, EnterArguments, Ran,
    SealArguments, Terminal, ViewArguments, Way, Wish,
};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::enter::{Ended, Tree};
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::BeginOptions;
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

/// Run a shell in a transaction's view
///
/// Without TX a transaction is begun for it. When the shell ends, you are
/// asked whether to commit; without an answer, or when the terminal is closed,
/// the transaction stays open, and `atomdir list` shows it. When there is no
/// terminal, or an option says what to do, the shell's exit code decides as in
/// `run`. With TX, that transaction stays open.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir shell -C /srv/site")]
pub struct Arguments {
    /// An open transaction; by default a new one
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    #[arg(conflicts_with_all = ["isolation", "durability", "message", "outer"])]
    #[arg(conflicts_with_all = ["on_error", "on_success", "on_conflict", "ask", "wait", "force"])]
    #[arg(conflicts_with_all = ["sealed", "confine", "view", "exclusive"])]
    transaction: Option<TransactionId>,
    #[command(flatten)]
    begin: BeginArguments,
    #[command(flatten)]
    end: EndArguments,
    #[command(flatten)]
    enter: EnterArguments,
    #[command(flatten)]
    seal: SealArguments,
    #[command(flatten)]
    view: ViewArguments,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let ended = match arguments.transaction {
        Some(transaction) => in_open_transaction(transaction, arguments, context)?,
        None => in_new_transaction(arguments, context)?,
    };
    Ok(ended.exit_code())
}

fn in_open_transaction(
    transaction: TransactionId,
    arguments: &Arguments,
    context: &Context,
) -> Result<Ended, Error> {
    let (mut connected, transaction, mut others) =
        attempt::enter_linked(context, Some(transaction))?;
    let (transaction, view) = attempt::attach(&mut connected, transaction)?;
    let mut way = arguments.enter.way(None);
    way.also = others.enter_others()?;
    context.output.note(format_args!(
        "in transaction {}, which stays open when this shell ends",
        transaction.id
    ));
    let inside = (&transaction, view);
    let ran = run_shell(context, &connected, inside, way)?;
    ran.end_writing(context)?;
    ran.warn_of_refused(context);
    attempt::leave(&mut connected.connection, transaction.id);
    others.leave();
    Ok(ran.ended)
}

fn in_new_transaction(arguments: &Arguments, context: &Context) -> Result<Ended, Error> {
    let end = &arguments.end;
    let decided = end.on_success.is_some() || end.on_error.is_some();
    let sealed = arguments.seal.is_wanted(end.ask);
    let mut terminal = match std::io::stdin().is_terminal() && !decided {
        _ if end.ask => Some(Terminal::open(sealed, DECIDE_LATER)?),
        true => Terminal::open(sealed, DECIDE_LATER).ok(),
        false => None,
    };
    let mut connected = context.connect()?;
    context.note_other_store(&connected, arguments.begin.outer.is_some());
    let current = context.current(&connected);
    let options = BeginOptions {
        sealed,
        view: arguments.view.choice()?,
        ..arguments.begin.options(shell_program(), false, current)
    };
    let (mut transaction, view) = attempt::begin(context, &mut connected, &options)?;
    if let Some(age) = arguments.begin.max_age {
        connected.connection.abort_after(transaction.id, age)?;
    }
    end.terms
        .set(&mut connected.connection, transaction.id, None)?;
    context
        .output
        .note(format_args!("in transaction {}", transaction.id));
    let sealing = match sealed {
        true => Some(arguments.seal.sealing(&connected, &transaction)?),
        false => None,
    };
    let way = arguments.enter.way(sealing);
    let ran = run_shell(context, &connected, (&transaction, view), way)?;
    let ended = ran.ended;
    let background = ran.background();
    // An interactive shell exits with the code of the last command that ran in it.
    let asked_for = match ended {
        Ended::Exited(_) | Ended::Killed { .. } if terminal.is_some() => Ended::Exited(0),
        ended => ended,
    };
    let wish = (ended, end.wish(asked_for, !decided));
    let others = end.others.others();
    if wish.1 == Wish::Abort {
        ran.give_up(context, &connected, transaction.id)?;
    } else {
        let closing = Closing {
            others,
            opened: true,
            stays_open: wish.1 == Wish::Keep || terminal.is_some(),
        };
        match ran.close(context, &mut connected, transaction, closing)? {
            Closed::Exact(exact) => transaction = exact,
            Closed::InUse(error) => {
                return attempt::left_open(context, error, wish).map(|(ended, _)| ended);
            }
        }
    }
    let concluded = attempt::conclude(
        context,
        &mut connected,
        &transaction,
        wish,
        others,
        terminal.as_mut(),
    );
    match concluded {
        Ok(outcome) => attempt::background::report(context, &background, &outcome),
        Err(error) => return Err(attempt::end_uncommitted(&mut connected, error, end)?),
    }
    Ok(ended)
}

pub(super) fn run_shell(
    context: &Context,
    connected: &Connected,
    inside: (&atomdir::client::Transaction, Tree),
    way: Way,
) -> Result<Ran, Error> {
    let shell = shell_program();
    let environment = prompt(&shell, inside.0.id);
    let command = [shell];
    attempt::run_command(
        context,
        connected,
        inside,
        way,
        &command,
        &environment,
        None,
    )
}

pub(super) fn shell_program() -> OsString {
    let from_environment = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    from_environment.unwrap_or_else(|| "/bin/sh".into())
}

/// Puts the transaction into the prompt of the shells that take one from the
/// environment. Bash's own set-up replaces PS1, so it is put in front of it
/// later, and only once.
fn prompt(shell: &OsString, transaction: TransactionId) -> Vec<(&'static str, OsString)> {
    let hint = format!("(transaction {transaction}) ");
    let name = Path::new(shell).file_name().and_then(|name| name.to_str());
    match name {
        Some("bash") => {
            let command = format!("PS1=\"{hint}$PS1\"; unset PROMPT_COMMAND");
            vec![("PROMPT_COMMAND", command.into())]
        }
        Some("sh" | "dash" | "ash" | "ksh" | "mksh") => {
            let sign = if rustix::process::geteuid().is_root() {
                '#'
            } else {
                '$'
            };
            vec![("PS1", format!("{hint}{sign} ").into())]
        }
        _ => Vec::new(),
    }
}
