use super::ExitCode;
use super::shell::{run_shell, shell_program};
use crate::attempt::{self, EnterArguments, SealArguments};
use crate::completion::{commands, commits};
use crate::context::{Connected, Context};
use crate::enter::{Ended, Tree};
use crate::error::{Error, conflict_line};
use crate::output::json;
use crate::when::{self, When};
use atomdir::Sequence;
use atomdir::client::{BeginOptions, PastView, Transaction};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Run a command, or a shell, in the store as it was just after a commit
///
/// The command sees the store's files as they were then, under their own path and in the same
/// directory, and cannot change them. Other programs see no difference. Changes by later commits
/// are undone in the view, as far back as the history goes. Changes by programs outside
/// transactions remain visible, with a warning if they are to something that commits left. Only
/// the store's owner and root can look at the past. To get files back, see `restore`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir at 41 -- grep -r timeout etc
  atomdir at 2h -- cp -a etc/site.conf /tmp/
  atomdir at '2026-11-22 14:00'")]
pub struct Arguments {
    /// A commit, as `atomdir log` lists it; 0: before the first. Or a time: how long ago (10m, 2h,
    /// 3d), a local date and time, or one as RFC 3339 has it
    #[arg(value_name = "COMMIT|TIME", value_parser = when::parse, add = commits())]
    when: When,
    /// If the old state of something is lost because programs outside transactions changed it,
    /// show it as it is now instead of refusing
    #[arg(long)]
    outside_as_now: bool,
    #[command(flatten)]
    enter: EnterArguments,
    #[command(flatten)]
    seal: SealArguments,
    /// The command and its arguments; by default a shell
    #[arg(value_name = "CMD", last = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments, add = commands("command"))]
    command: Vec<OsString>,
}

#[derive(Serialize)]
struct Finished<'a> {
    commit: u64,
    transaction: u64,
    exit_code: ExitCode,
    /// What was shown as it is now.
    outside_as_now: Vec<json::ConflictLine<'a>>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let commit = arguments.when.commit(&mut connected.connection)?;
    let past = PastView {
        commit,
        outside_as_now: arguments.outside_as_now,
        outside_since: Some(Sequence(0)),
        beside: None,
    };
    let options = BeginOptions {
        label: arguments.label(commit),
        sealed: arguments.seal.is_wanted(false),
        opened: true,
        ..BeginOptions::default()
    };
    let begun = connected.connection.past(past, &options);
    let (transaction, as_now) = begun.map_err(Error::Undo)?;
    for conflict in &as_now {
        let line = conflict_line(conflict);
        context
            .output
            .warn(format_args!("shown as it is now: {line}"));
    }
    let ended = arguments.enter(context, &connected, &transaction);
    // The service may have ended meanwhile, and with it the view.
    let _ = connected.connection.abort(transaction.id);
    let exit_code = ended?.exit_code();
    if context.output.is_json() {
        context.output.tell_json(&Finished {
            commit: commit.0,
            transaction: transaction.id.0,
            exit_code,
            outside_as_now: json::conflicts(&as_now),
        });
    }
    Ok(exit_code)
}

impl Arguments {
    fn label(&self, commit: Sequence) -> Vec<u8> {
        let mut label = format!("at {commit}").into_bytes();
        if !self.command.is_empty() {
            label.extend(b" -- ");
            label.extend(attempt::command_line(&self.command).as_bytes());
        }
        label
    }

    fn enter(
        &self,
        context: &Context,
        connected: &Connected,
        transaction: &Transaction,
    ) -> Result<Ended, Error> {
        let sealing = match self.seal.is_wanted(false) {
            true => Some(self.seal.sealing(connected, transaction)?),
            false => None,
        };
        let way = self.enter.way(sealing);
        let view = Tree::Exact(connected.connection.enterable_root(transaction)?);
        let inside = (transaction, view);
        if !self.command.is_empty() {
            let command = &self.command;
            let ran = attempt::run_command(context, connected, inside, way, command, &[], None)?;
            return Ok(ran.ended);
        }
        context.output.note(format_args!(
            "{} shows the store as it was; end it to come back",
            shell_program().display()
        ));
        Ok(run_shell(context, connected, inside, way)?.ended)
    }
}
