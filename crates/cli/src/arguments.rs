//! The command line: what every verb takes, and the verbs.

use crate::verbs;
use atomdir::TransactionId;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

const EXAMPLE: &str = "\
Example:
  atomdir init /srv/site
  atomdir run -C /srv/site -- ./upgrade.sh

Exit codes: a command's own; 64 usage, 66 no such store or transaction,
70 internal, 73 cannot create, 74 I/O, 75 conflict or busy (try again),
77 not permitted, 78 configuration, 124 timed out.";

/// ACID transactions for ordinary directories.
#[derive(Debug, Parser)]
#[command(name = "atomdir", version, styles = STYLES, after_help = EXAMPLE)]
#[command(max_term_width = 90, arg_required_else_help = true)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Act as if started in DIR; the store is the one that holds it
    #[arg(short = 'C', value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// Use the store though it, or a directory above it, is another user's
    #[arg(long, global = true)]
    pub trust: bool,
    /// Print JSON, as docs/json.md describes it
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only what was asked for, and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Init(verbs::init::Arguments),
    Config(verbs::config::Arguments),
    Run(verbs::run::Arguments),
    Begin(verbs::begin::Arguments),
    Exec(verbs::exec::Arguments),
    Shell(verbs::shell::Arguments),
    Status(verbs::status::Arguments),
    Diff(verbs::diff::Arguments),
    Commit(verbs::commit::Arguments),
    Abort(verbs::abort::Arguments),
    Lock(verbs::lock::Arguments),
    Unlock(verbs::unlock::Arguments),
    Savepoint(verbs::savepoint::Arguments),
    Rollback(verbs::rollback::Arguments),
    List(verbs::list::Arguments),
    Log(verbs::log::Arguments),
    Show(verbs::show::Arguments),
    Sync(verbs::sync::Arguments),
    Recover(verbs::recover::Arguments),
    Check(verbs::check::Arguments),
    Service(verbs::service::Arguments),
    Completions(verbs::completions::Arguments),
    Man(verbs::man::Arguments),
}

pub fn transaction_id(text: &str) -> Result<TransactionId, String> {
    match text.parse() {
        Ok(number) => Ok(TransactionId(number)),
        Err(_) => Err("a transaction's id is a number, as `atomdir list` shows it".into()),
    }
}

/// A whole number, at least 0.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let wrong = || "it is not a whole number, or it is too large".to_owned();
    text.parse().map_err(|_| wrong())
}
