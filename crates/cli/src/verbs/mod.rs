//! One file for each verb, with its arguments, its help, and its function.

pub mod abort;
pub mod at;
pub mod begin;
pub mod check;
pub mod commit;
pub mod completions;
pub mod config;
pub mod confirm;
pub mod conflicts;
pub mod deinit;
pub mod diff;
pub mod exec;
pub mod fork;
pub mod init;
pub mod list;
mod list_stores;
pub mod lock;
pub mod log;
pub mod make;
pub mod man;
pub mod mcp;
pub mod mount;
pub mod pin;
pub mod profile;
pub mod prune;
pub mod recover;
pub mod refresh;
pub mod relabel;
pub mod resolve;
pub mod restore;
pub mod rollback;
pub mod run;
pub mod savepoint;
pub mod service;
pub mod shell;
pub mod show;
pub mod status;
pub mod sync;
pub mod umount;
pub mod undo;
pub mod unlock;
pub mod unpack;

use crate::arguments::Verb;
use crate::context::Context;
use crate::error::Error;

/// What the program ends with, if all went well.
pub type ExitCode = u8;

pub const SUCCESS: ExitCode = 0;

pub fn run(verb: Verb, context: &Context) -> Result<ExitCode, Error> {
    if !context.others().is_empty() && !matches!(verb, Verb::Run(_) | Verb::Begin(_)) {
        return Err(Error::usage(
            "only `run` and `begin` work in several stores at once: give one `-C`",
        ));
    }
    match verb {
        Verb::Init(arguments) => init::run(&arguments, context),
        Verb::Deinit(arguments) => deinit::run(&arguments, context),
        Verb::Config(arguments) => config::run(&arguments, context),
        Verb::Run(arguments) => run::run(&arguments, context),
        Verb::Make(arguments) => make::run(&arguments, context),
        Verb::Unpack(arguments) => unpack::run(&arguments, context),
        Verb::Profile(arguments) => profile::run(&arguments, context),
        Verb::Begin(arguments) => begin::run(&arguments, context),
        Verb::Fork(arguments) => fork::run(&arguments, context),
        Verb::Exec(arguments) => exec::run(&arguments, context),
        Verb::Shell(arguments) => shell::run(&arguments, context),
        Verb::Status(arguments) => status::run(&arguments, context),
        Verb::Diff(arguments) => diff::run(&arguments, context),
        Verb::Conflicts(arguments) => conflicts::run(&arguments, context),
        Verb::Refresh(arguments) => refresh::run(&arguments, context),
        Verb::Commit(arguments) => commit::run(&arguments, context),
        Verb::Confirm(arguments) => confirm::run(&arguments, context),
        Verb::Abort(arguments) => abort::run(&arguments, context),
        Verb::Lock(arguments) => lock::run(&arguments, context),
        Verb::Unlock(arguments) => unlock::run(&arguments, context),
        Verb::Savepoint(arguments) => savepoint::run(&arguments, context),
        Verb::Rollback(arguments) => rollback::run(&arguments, context),
        Verb::List(arguments) => list::run(&arguments, context),
        Verb::Log(arguments) => log::run(&arguments, context),
        Verb::Show(arguments) => show::run(&arguments, context),
        Verb::Undo(arguments) => undo::run(&arguments, context),
        Verb::Resolve(arguments) => resolve::run(&arguments, context),
        Verb::Restore(arguments) => restore::run(&arguments, context),
        Verb::At(arguments) => at::run(&arguments, context),
        Verb::Pin(arguments) => pin::run(&arguments, context),
        Verb::Relabel(arguments) => relabel::run(&arguments, context),
        Verb::Prune(arguments) => prune::run(&arguments, context),
        Verb::Sync(arguments) => sync::run(&arguments, context),
        Verb::Recover(arguments) => recover::run(&arguments, context),
        Verb::Check(arguments) => check::run(&arguments, context),
        Verb::Mount(arguments) => mount::run(&arguments, context),
        Verb::Umount(arguments) => umount::run(&arguments, context),
        Verb::Service(arguments) => service::run(&arguments, context),
        Verb::Completions(arguments) => completions::run(&arguments, context),
        Verb::Mcp(mcp::Arguments {}) => mcp::run(context),
        Verb::Man(arguments) => man::run(&arguments, context),
    }
}
