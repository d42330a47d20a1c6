//! Completes the command line in a shell.
//!
//! The script that `atomdir completions` prints calls `atomdir` each time the user presses
//! Tab, with the words typed so far and the variable [`VARIABLE`]. That call only prints
//! what may come next. It starts no service, and reports no error, since the user has not
//! asked for anything yet.

use crate::arguments::{Arguments, Global};
use crate::context::{Connected, Context};
use crate::output::{Output, escaped};
use atomdir::client::TransactionStatus;
use clap::CommandFactory;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Names the shell that asks for completions.
const VARIABLE: &str = "ATOMDIR_COMPLETE";

/// More commits than a user looks through.
const COMMITS_MAX: u64 = 50;

/// If a shell asks for completions, prints them and exits.
pub fn answer() {
    CompleteEnv::with_factory(Arguments::command)
        .var(VARIABLE)
        .complete();
}

pub fn write_script(shell: Shell, script: &mut Vec<u8>) -> io::Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&name)
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    completer.write_registration(VARIABLE, "atomdir", "atomdir", "atomdir", script)
}

/// The user's open transactions.
pub fn transactions() -> ArgValueCandidates {
    ArgValueCandidates::new(transaction_candidates)
}

/// The user's open transactions, and paths.
pub fn transactions_and_paths() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let mut candidates = transaction_candidates();
        let typed_bytes = typed.as_encoded_bytes();
        candidates.retain(|one| one.get_value().as_encoded_bytes().starts_with(typed_bytes));
        candidates.extend(PathCompleter::any().complete(typed));
        candidates
    })
}

/// The savepoints of the user's open transactions.
pub fn savepoints() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let of_one = |status: TransactionStatus| {
            let help = format!("transaction {}", status.transaction);
            let candidate = move |name| {
                let name = OsString::from_vec(name);
                CompletionCandidate::new(name).help(Some(help.clone().into()))
            };
            status.savepoints.into_iter().map(candidate)
        };
        open_transactions().into_iter().flat_map(of_one).collect()
    })
}

fn transaction_candidates() -> Vec<CompletionCandidate> {
    let candidate = |status: TransactionStatus| {
        let label = escaped(&status.label);
        CompletionCandidate::new(status.transaction.to_string()).help(Some(label.into()))
    };
    open_transactions().into_iter().map(candidate).collect()
}

fn open_transactions() -> Vec<TransactionStatus> {
    let found = connect().and_then(|mut connected| connected.connection.transactions().ok());
    found.unwrap_or_default()
}

/// The newest commits.
pub fn commits() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let commits =
            connect().and_then(|mut connected| connected.connection.log(None, COMMITS_MAX).ok());
        let candidate = |commit: atomdir::CommitSummary| {
            let label = escaped(&commit.label);
            CompletionCandidate::new(commit.sequence.to_string()).help(Some(label.into()))
        };
        commits.into_iter().flatten().map(candidate).collect()
    })
}

fn connect() -> Option<Connected> {
    let global = Global {
        directory: directory_typed(),
        ..Global::default()
    };
    let context = Context::new(&global, Output::new(false, true, false)).ok()?;
    context.without_news().connect_if_running().ok()?
}

/// The argument of `-C`, if the user has typed one.
fn directory_typed() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.find(|word| word == "-C")?;
    words.next().map(PathBuf::from)
}
