//! The command line: the options that all verbs take, and the verbs.

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
77 not permitted, 78 configuration, 124 timed out.

Environment:
  ATOMDIR_VIEW           the view for `run` and `shell`: auto, exact, native or exclusive
  ATOMDIR_ALLOW_UNBOUND  like the option --allow-unbound of `run`
  ATOMDIR_MERGE          the merge tool of `commit --merge --tool`: a shell command that
                         merges $LOCAL and $REMOTE over $BASE into $MERGED
  ATOMDIR_PAGER, PAGER   the program that shows long output on a terminal
  NO_COLOR               print without colour
  ATOMDIR_TX             set for commands in a transaction: its id";

/// The verbs are grouped by what people want to do: clap would list them in one row.
const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}

Make a store:
  init         Make a directory a store
  config       Show or change a store's settings
  deinit       Make a store an ordinary directory again

Change it as a whole or not at all:
  run          Run a command as a transaction: it commits if the command exits 0
  shell        Run a shell in a transaction
  make         Run GNU make so that each recipe is a transaction
  unpack       Unpack an archive in one transaction
  profile      Have programs run in transactions whenever they are called

Step by step:
  begin        Begin a transaction; print its id and where its view is
  fork         Begin a second transaction from the state of an open one
  exec         Run a command in an open transaction
  savepoint    Name the present state of a transaction
  rollback     Take a transaction back to a savepoint
  lock         Lock files or directories for a transaction
  unlock       End locks of a transaction before it ends
  conflicts    List what keeps a transaction from being committed
  refresh      Bring a transaction's snapshot up to date
  commit       Make a transaction's changes take effect
  abort        Drop a transaction's changes
  resolve      End a transaction that is in doubt, if the store that decides is lost

Look:
  list         List the open transactions
  status       Show a transaction and what it has changed
  diff         Show what a transaction has changed, line by line
  log          List the commits, newest first
  show         Show what a commit changed
  relabel      Change what the log says of a commit

Change your mind:
  undo         Take back what commits changed
  confirm      Confirm a commit that would take itself back
  restore      Bring files back as they were after a commit
  at           Run a command, or a shell, in the store as it was after a commit
  pin          Keep a commit from being forgotten
  prune        Forget old commits, and free what is kept to undo them

Take care of it:
  sync         Make all lazy commits durable
  check        Look for damage in the store's log and control directory
  recover      Bring the store to the state of its last commit
  mount        Mount the guard: programs outside see each commit as a whole
  umount       Unmount the guard
  service      Start, stop or look at the process that owns the store

For agents:
  mcp          Serve an agent's tools: the Model Context Protocol

For the shell:
  completions  Print a shell's completion script
  man          Print the manual page, or write those of all verbs
  help         Print this message or the help of a verb

Options:
{options}{after-help}";

/// ACID transactions for ordinary directories.
#[derive(Debug, Parser)]
#[command(name = "atomdir", version, styles = STYLES, after_help = EXAMPLE)]
#[command(max_term_width = 90, arg_required_else_help = true)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
#[command(help_template = TEMPLATE, disable_help_subcommand = false)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Act as if started in DIR; the store is the one that holds it. With `run` and `begin`, each
    /// further DIR adds the transaction of another store
    #[arg(short = 'C', value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    pub directories: Vec<PathBuf>,
    /// Use the store though it, or a directory above it, is another user's
    #[arg(long, global = true)]
    pub trust: bool,
    /// Print JSON, as docs/json.md describes it
    #[arg(long, global = true)]
    pub json: bool,
    /// Print long results without a pager
    #[arg(long, global = true)]
    pub no_pager: bool,
    /// Print only what was asked for, and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

/// Only the options of the verb that is called are put together: those of all take a millisecond.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Init(verbs::init::Arguments),
    Deinit(verbs::deinit::Arguments),
    Config(verbs::config::Arguments),
    Run(verbs::run::Arguments),
    Make(verbs::make::Arguments),
    Unpack(verbs::unpack::Arguments),
    Profile(verbs::profile::Arguments),
    Begin(verbs::begin::Arguments),
    Fork(verbs::fork::Arguments),
    Exec(verbs::exec::Arguments),
    Shell(verbs::shell::Arguments),
    Status(verbs::status::Arguments),
    Diff(verbs::diff::Arguments),
    Conflicts(verbs::conflicts::Arguments),
    Refresh(verbs::refresh::Arguments),
    Commit(verbs::commit::Arguments),
    Confirm(verbs::confirm::Arguments),
    Abort(verbs::abort::Arguments),
    Lock(verbs::lock::Arguments),
    Unlock(verbs::unlock::Arguments),
    Savepoint(verbs::savepoint::Arguments),
    Rollback(verbs::rollback::Arguments),
    List(verbs::list::Arguments),
    Log(verbs::log::Arguments),
    Show(verbs::show::Arguments),
    Undo(verbs::undo::Arguments),
    Resolve(verbs::resolve::Arguments),
    Restore(verbs::restore::Arguments),
    At(verbs::at::Arguments),
    Pin(verbs::pin::Arguments),
    Relabel(verbs::relabel::Arguments),
    Prune(verbs::prune::Arguments),
    Sync(verbs::sync::Arguments),
    Recover(verbs::recover::Arguments),
    Check(verbs::check::Arguments),
    Mount(verbs::mount::Arguments),
    Umount(verbs::umount::Arguments),
    Service(verbs::service::Arguments),
    Completions(verbs::completions::Arguments),
    Man(verbs::man::Arguments),
    Mcp(verbs::mcp::Arguments),
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
