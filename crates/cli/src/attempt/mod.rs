//! Runs a command in a transaction and ends the transaction: the common part of
//! the verbs that run a command and then commit.

mod ask;
pub mod background;
mod backoff;
mod begin;
pub mod deviations;
mod hear;
mod joint;
mod landed;
mod linked;
mod met;
mod native;
mod options;
mod outcome;
mod ran;
mod sealing;
mod status_descriptor;
mod summary;
mod terminal;
mod terms;

use ask::ask;
pub use backoff::Backoff;
pub use joint::{Partners, aborted, conclude as conclude_jointly, not_in_several};
pub use landed::PartDone;
pub use linked::{Linked, enter_linked, root as root_of};
pub use met::refuse_met;
pub use native::{ViewArguments, begin, begin_all};
pub use options::{
    BeginArguments, EndArguments, EnterArguments, OnConflict, OthersArguments, Way, command_line,
};
pub use outcome::{Finished, Outcome};
pub use ran::{Closed, Closing, Ran, attach};
pub use sealing::SealArguments;
pub use status_descriptor::StatusDescriptor;
pub use terminal::{DECIDE_LATER, Terminal};
pub use terms::{TermsArguments, early_reason};

use crate::context::{Connected, Context};
use crate::enter::{self, Ended, EnterError, ServiceWatch, Tree, ViewBinding};
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{
    CommitError, Committed, CommittedPortion, Connection, Current, FailureKind, Others, Portion,
    Progress, RequestError, Transaction,
};
use clap::ValueEnum;
use hear::Services;
use std::cell::RefCell;
use std::ffi::OsString;
use std::time::Duration;

/// What the command shall do with a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wish {
    /// Its changes take effect
    Commit,
    /// Its changes are dropped
    Abort,
    /// It stays open, to be looked at and ended later
    Keep,
}

/// Runs a command in a transaction's view until it ends. Its background processes may still run.
pub fn run_command(
    context: &Context,
    connected: &Connected,
    (transaction, view): (&Transaction, Tree),
    way: Way<'_>,
    command: &[OsString],
    environment: &[(&str, OsString)],
    timeout: Option<Duration>,
) -> Result<Ran, Error> {
    let heard = way.heard;
    let binding = ViewBinding {
        base: connected.root.clone(),
        view,
        directory: connected.start.clone(),
        may_be_unbound: way.may_be_unbound,
        also: way.also,
        sealing: way.sealing,
    };
    let mut environment = environment.to_vec();
    environment.extend(Current::environment(transaction, &connected.root));
    environment.extend(crate::git::environment(&connected.root));
    let own = (&connected.connection, (transaction, &binding.view));
    let others = heard.into_iter().zip(&binding.also);
    let others =
        others.map(|((connection, transaction), one)| (connection, (transaction, &one.view)));
    let services = Services::new(context, own, others.collect()).map_err(EnterError::Wait)?;
    let read = || services.hear();
    let service = ServiceWatch {
        descriptor: services.descriptor(),
        read: &read,
        is_vital: services.are_vital(),
    };
    let mut running = enter::start(&binding, command, &environment, timeout, Some(service))?;
    if !services.hear_missed() {
        running.give_up();
    }
    if let Some(failure) = running.without_namespace() {
        context.output.warn(format_args!(
            "the command runs in {}, not under the store's own path ({failure}): what it does in \
             {} happens at once, outside the transaction",
            transaction.view_path.display(),
            connected.root.display(),
        ));
    }
    if let Some(failure) = running.without_processes() {
        context.output.detail(format_args!(
            "the command has no process namespace of its own, so atomdir searches for the \
             processes that it leaves running and kills them: {failure}"
        ));
    }
    let ended = running.wait()?;
    let (remainder, hang_up) = running.into_remainder();
    let ran = Ran {
        ended,
        base: binding.base,
        view: binding.view,
        also: binding.also,
        remainder,
        refused: RefCell::default(),
        hang_up: Some(hang_up),
    };
    ran.explain_failure(context);
    Ok(ran)
}

/// Carries out the wish, after asking on the terminal if one is given. After a
/// failed commit the transaction is still open, unless the service has ended. If overlayfs has done
/// something otherwise than a plain directory would, the user decides first.
pub fn conclude(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    (ended, wish): (Ended, Wish),
    others: Others,
    terminal: Option<&mut Terminal>,
) -> Result<Outcome, Error> {
    deviations::report(context, connected, transaction, wish)?;
    let wish = match (wish, terminal) {
        (Wish::Commit, Some(terminal)) => {
            ask(context, connected, transaction, others, terminal)?.unwrap_or(Wish::Commit)
        }
        (wish, _) => wish,
    };
    let connection = &mut connected.connection;
    let outcome = match wish {
        Wish::Commit => Outcome::Committed(commit(context, connection, transaction.id, others)?),
        Wish::Abort => {
            connection.abort(transaction.id)?;
            Outcome::Aborted
        }
        Wish::Keep => {
            connection.keep(transaction.id)?;
            Outcome::Kept
        }
    };
    match &outcome {
        Outcome::Committed(committed) => summary::show(context, connection, committed),
        outcome => report(context, transaction.id, ended, outcome),
    }
    Ok(outcome)
}

/// The result of a command in whose native view others still are.
pub fn left_open(
    context: &Context,
    error: Error,
    (ended, wish): (Ended, Wish),
) -> Result<(Ended, Outcome), Error> {
    match error {
        Error::Commit { transaction, .. }
        | Error::Enter(EnterError::StillWriting { transaction, .. })
            if wish == Wish::Keep =>
        {
            report(context, transaction, ended, &Outcome::Kept);
            Ok((ended, Outcome::Kept))
        }
        error => Err(error),
    }
}

/// Reports what became of a transaction that was not committed.
fn report(context: &Context, transaction: TransactionId, ended: Ended, outcome: &Outcome) {
    let how = match ended {
        Ended::Exited(code) => format!("the command exited with {code}"),
        Ended::Killed {
            signal: libc::SIGINT,
        } => "the command was interrupted".to_owned(),
        Ended::Killed { signal } => {
            format!("the command was killed by {}", enter::signal_name(signal))
        }
        Ended::TimedOut => "the command took too long and was killed".to_owned(),
        Ended::HungUp => "the terminal was closed".to_owned(),
        Ended::InVain => "the service has ended, and the command was killed".to_owned(),
    };
    let output = &context.output;
    match outcome {
        Outcome::Committed(_) => {}
        Outcome::Aborted => output.note(format_args!(
            "{how}; transaction {transaction} is aborted, and its changes are dropped"
        )),
        Outcome::Kept => output.note(format_args!(
            "{how}; transaction {transaction} stays open: `atomdir list` shows it, `atomdir diff \
             {transaction}` its changes; `atomdir commit {transaction}` or `atomdir abort \
             {transaction}` ends it"
        )),
    }
}

/// Makes the view read-only, so that the commit lands exactly what is then
/// shown. It fails for the same reasons as the commit, and also leaves the
/// transaction open.
pub fn freeze(
    context: &Context,
    connection: &mut Connection,
    transaction: TransactionId,
    others: Others,
) -> Result<(), Error> {
    let frozen = connection.freeze(transaction, others, &mut |progress| {
        note_wait(context, &progress);
    });
    frozen.map_err(|source| Error::Commit {
        transaction,
        source: source.into(),
        open: true,
    })
}

pub fn commit(
    context: &Context,
    connection: &mut Connection,
    transaction: TransactionId,
    others: Others,
) -> Result<Committed, Error> {
    let done = commit_portion(context, connection, transaction, &Portion::All, others)?;
    Ok(done.committed)
}

pub fn commit_portion(
    context: &Context,
    connection: &mut Connection,
    transaction: TransactionId,
    portion: &Portion,
    others: Others,
) -> Result<CommittedPortion, Error> {
    let done = reporting(context, transaction, |report| {
        connection.commit_portion(transaction, portion, others, report)
    })?;
    note_landed(context, &done.committed);
    Ok(done)
}

/// Has the rest of a transaction survive the service again, after a part of it has landed.
pub fn survive_again(context: &Context, connection: &mut Connection, transaction: TransactionId) {
    if let Err(error) = connection.survive_again(transaction) {
        let note = format!("transaction {transaction} ends with the service: {error}");
        context.output.note(&note);
    }
}

/// Shows how far a commit is.
fn reporting<T>(
    context: &Context,
    transaction: TransactionId,
    commit: impl FnOnce(&mut dyn FnMut(Progress)) -> Result<T, CommitError>,
) -> Result<T, Error> {
    let mut line = context.output.progress("committing");
    let committed = commit(&mut |progress| match progress {
        Progress::Steps { done, total } => line.update(done, total),
        waiting @ Progress::Waiting(_) => note_wait(context, &waiting),
    });
    committed.map_err(|source| Error::Commit {
        transaction,
        open: !source.is_logged(),
        source,
    })
}

fn note_landed(context: &Context, committed: &Committed) {
    terms::note_terms(context, committed);
    if let (Some(sequence), Some(stalled)) = (committed.sequence, &committed.stalled) {
        context.output.note(format_args!(
            "commit {sequence} is not visible yet: {stalled}"
        ));
    }
}

/// Says why a request waits.
fn note_wait(context: &Context, progress: &Progress) {
    if let Progress::Waiting(reason) = progress {
        context.output.note(format_args!("{reason}: waiting"));
    }
}

/// Detaches from a transaction now, so that the next commit does not find us in it.
pub fn leave(connection: &mut Connection, transaction: TransactionId) {
    // The transaction or the service may have ended meanwhile.
    let _ = connection.detach(transaction);
}

/// After a failed commit, keeps the transaction open beyond our end or aborts
/// it. The returned error says which of them happened.
pub fn end_uncommitted(
    connected: &mut Connected,
    error: Error,
    end: &EndArguments,
) -> Result<Error, RequestError> {
    if connected.has_heir {
        return Ok(error);
    }
    let connection = &mut connected.connection;
    let Error::Commit {
        transaction,
        source,
        open: true,
    } = error
    else {
        return Ok(error);
    };
    let mut open = true;
    if !matches!(
        source,
        CommitError::Request(RequestError::Disconnected { .. })
    ) {
        // While others are in it, it is also theirs, so we do not abort it. After the end
        // of a lease the same commit succeeds.
        let is_nested = connection
            .status(transaction)
            .is_ok_and(|status| status.outer.is_some());
        if source.is_in_use() || source.is_leased() || end.keeps_uncommitted(is_nested) {
            match connection.keep(transaction) {
                // Somebody else has ended it.
                Err(error) if error.kind() == Some(FailureKind::NoSuchTransaction) => {}
                result => result?,
            }
        } else {
            open = connection.abort(transaction).is_err();
        }
    }
    Ok(Error::Commit {
        transaction,
        source,
        open,
    })
}

pub fn is_conflict(error: &Error) -> bool {
    if let Error::Elsewhere { source, .. } = error {
        return is_conflict(source);
    }
    matches!(
        error,
        Error::Commit {
            source: CommitError::Conflict { .. },
            ..
        }
    )
}
