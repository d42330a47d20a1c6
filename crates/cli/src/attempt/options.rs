//! Options of the verbs that begin a transaction, and of those that end one.

use super::Wish;
use crate::enter::{AlsoBound, Ended, Sealing};
use atomdir::client::{Connection, Others, Transaction};
use atomdir::{Conflicts, Durability, Isolation, TransactionId};
use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct BeginArguments {
    /// Which changes by others make the commit fail
    #[arg(long, value_parser = isolation(), default_value = "snapshot", value_name = "LEVEL")]
    pub isolation: Isolation,
    /// When the commit returns
    #[arg(long, value_parser = durability(), default_value = "durable", value_name = "LEVEL")]
    pub durability: Durability,
    /// When conflicts with other transactions are reported
    #[arg(long, value_parser = conflicts(), default_value = "at-commit", value_name = "WHEN")]
    pub conflicts: Conflicts,
    /// What the log calls the transaction
    #[arg(short, long)]
    pub message: Option<OsString>,
    /// Abort it after T (30s, 10m, 2h) if it is still open
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    pub max_age: Option<Duration>,
    /// Nest it in this transaction; `none` begins an independent one. By default it is
    /// nested in the one that this runs in
    #[arg(long = "in", value_name = "TX", value_parser = outer)]
    #[arg(add = crate::completion::transactions())]
    pub outer: Option<Outer>,
}

// The library's options have no help for a command line, so their words and help are here.

fn isolation() -> impl TypedValueParser<Value = Isolation> {
    choice([
        (
            Isolation::Snapshot,
            "snapshot",
            "The commit fails if others have changed what the transaction wrote",
        ),
        (
            Isolation::Serializable,
            "serializable",
            "It also fails if others have changed what the transaction read",
        ),
    ])
}

fn durability() -> impl TypedValueParser<Value = Durability> {
    choice([
        (
            Durability::Durable,
            "durable",
            "When it survives a power cut and is in the directory",
        ),
        (
            Durability::Deferred,
            "deferred",
            "When it survives a power cut. Programs outside see it up to 100 ms later",
        ),
        (
            Durability::Lazy,
            "lazy",
            "Before that. It survives one after 100 ms, or after the next durable commit",
        ),
    ])
}

fn conflicts() -> impl TypedValueParser<Value = Conflicts> {
    choice([
        (
            Conflicts::AtCommit,
            "at-commit",
            "At the commit: the first to commit wins",
        ),
        (
            Conflicts::Early,
            "early",
            "At the write, which then fails: the oldest wins",
        ),
    ])
}

/// One of several values, each with its word and help.
fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    choices: [(T, &'static str, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let words = choices.map(|(_, word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).map(move |chosen| {
        let chosen = choices.iter().find(|(_, word, _)| chosen == *word);
        chosen.unwrap_or(&choices[0]).0
    })
}

/// The transaction in which a new one is nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outer {
    None,
    Transaction(TransactionId),
}

fn outer(text: &str) -> Result<Outer, String> {
    match text {
        "none" => Ok(Outer::None),
        text => crate::arguments::transaction_id(text).map(Outer::Transaction),
    }
}

impl BeginArguments {
    /// `label` names the transaction if the user gave no message. `current` is
    /// the transaction that this process runs in.
    pub fn options(
        &self,
        label: OsString,
        detached: bool,
        current: Option<TransactionId>,
    ) -> atomdir::client::BeginOptions {
        atomdir::client::BeginOptions {
            outer: match self.outer {
                Some(Outer::Transaction(outer)) => Some(outer),
                Some(Outer::None) => None,
                None => current,
            },
            fork_of: None,
            wait: false,
            declares_reads: false,
            isolation: self.isolation,
            durability: self.durability,
            conflicts: self.conflicts,
            first_try: None,
            label: self.message.clone().unwrap_or(label).into_vec(),
            detached,
            view: atomdir::client::ViewChoice::Exact,
            // Commands enter the view by the descriptor of its root.
            opened: true,
            commits_while_held: false,
            sealed: false,
        }
    }
}

#[derive(Debug, Args)]
pub struct EndArguments {
    /// What to do when the command fails, instead of aborting
    #[arg(long, value_enum, value_name = "WISH")]
    pub on_error: Option<Wish>,
    /// What to do when the command succeeds, instead of committing
    #[arg(long, value_enum, value_name = "WISH")]
    pub on_success: Option<Wish>,
    /// Show the changes on the terminal and ask before committing them; without
    /// an answer the transaction stays open
    #[arg(long)]
    pub ask: bool,
    /// What to do with the transaction when its commit fails; by default it is
    /// kept, but a nested one only if the standard input is a terminal. A loop
    /// that nobody watches should abort it
    #[arg(long, value_enum, value_name = "WISH")]
    pub on_conflict: Option<OnConflict>,
    #[command(flatten)]
    pub terms: super::TermsArguments,
    #[command(flatten)]
    pub others: OthersArguments,
}

/// What is to become of a transaction whose commit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// It stays open, so that its changes can be looked at
    Keep,
    /// Its changes are dropped
    Abort,
}

/// Options of the verbs that run a command in a view.
#[derive(Debug, Args)]
pub struct EnterArguments {
    /// Run the command even if the view cannot stand in the place of the store.
    /// What it does by the store's absolute path then happens at once, outside
    /// the transaction
    #[arg(long, env = "ATOMDIR_ALLOW_UNBOUND", value_parser = FalseyValueParser::new())]
    pub allow_unbound: bool,
}

impl EnterArguments {
    pub fn way(&self, sealing: Option<Sealing>) -> Way<'static> {
        Way {
            may_be_unbound: self.allow_unbound,
            also: Vec::new(),
            heard: Vec::new(),
            sealing,
        }
    }
}

/// How a command gets into its view.
pub struct Way<'a> {
    pub may_be_unbound: bool,
    /// The views of other stores.
    pub also: Vec<AlsoBound>,
    /// For each of them, the connection of the process that mounted it.
    pub heard: Vec<(&'a Connection, &'a Transaction)>,
    /// Set if the command is to be sealed.
    pub sealing: Option<Sealing>,
}

#[derive(Debug, Args)]
pub struct OthersArguments {
    /// Commit when nobody else is in the transaction any more
    #[arg(long, conflicts_with = "force")]
    wait: bool,
    /// Commit although others are in the transaction, which ends their views
    #[arg(long)]
    force: bool,
}

impl OthersArguments {
    pub fn others(&self) -> Others {
        match (self.wait, self.force) {
            (true, _) => Others::Wait,
            (_, true) => Others::End,
            _ => Others::Refuse,
        }
    }
}

impl EndArguments {
    /// `is_asked` says whether the user is to decide at a terminal.
    pub fn wish(&self, ended: Ended, is_asked: bool) -> Wish {
        match ended {
            Ended::Exited(0) => self.on_success.unwrap_or(Wish::Commit),
            // The user has not decided, and can do so later.
            Ended::HungUp if is_asked => Wish::Keep,
            // The service has ended, and with it the view.
            Ended::InVain => Wish::Abort,
            _ => self.on_error.unwrap_or(Wish::Abort),
        }
    }

    /// Whether a transaction stays open after our end when its commit has failed. A nested one
    /// that stays open keeps the outer one from its commit, so a script that goes on after a
    /// conflict would fail at its end.
    pub fn keeps_uncommitted(&self, is_nested: bool) -> bool {
        match self.on_conflict {
            Some(wish) => wish == OnConflict::Keep,
            None => !is_nested || std::io::stdin().is_terminal(),
        }
    }
}

/// A command for display. It is not quoted for a shell.
pub fn command_line(command: &[OsString]) -> OsString {
    OsString::from_vec(
        command
            .iter()
            .map(|word| word.as_bytes())
            .collect::<Vec<_>>()
            .join(&b' '),
    )
}
