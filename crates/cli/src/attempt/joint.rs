//! One command in the transactions of several stores, which are committed together: two-phase commit. The
//! commit of the first that has changed anything, the coordinator, is the decision. All others vote for
//! it before: then nothing but the decision ends them. If this program dies in between, their services
//! ask the coordinator's.

use super::{Wish, commit, deviations, note_wait};
use crate::context::{Connected, Context};
use crate::enter::{AlsoBound, Ended};
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{
    BeginOptions, CommitError, Committed, Connection, Coordinator, Others, Progress, RequestError,
    Transaction, ViewChoice, describe_user, reason,
};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The stores beside the first one, and the transaction in each.
#[derive(Default)]
pub struct Partners(Vec<Partner>);

struct Partner {
    connected: Connected,
    transaction: Option<Transaction>,
}

/// A transaction, and the way to its store.
pub type Side<'a> = (&'a mut Connection, &'a Path, TransactionId);

impl Partners {
    /// Connects to the other stores that the user has named.
    pub fn connect(context: &Context, first: &Connected) -> Result<Partners, Error> {
        let mut partners = Partners::default();
        for directory in context.others() {
            let connected = context.connect_at(directory)?;
            let mut known = partners.0.iter().map(|one| &one.connected);
            let is_apart = |one: &Connected| {
                !one.root.starts_with(&connected.root) && !connected.root.starts_with(&one.root)
            };
            if !is_apart(first) || !known.all(is_apart) {
                return Err(Error::usage(format!(
                    "'{}' is the same store as another that is named, or one is inside the other",
                    connected.root.display()
                )));
            }
            if context.current(first).is_some() || context.current(&connected).is_some() {
                return Err(Error::usage(
                    "transactions of several stores cannot be nested: run it outside the one that this \
                     runs in",
                ));
            }
            refuse_other_owner(first, &connected)?;
            partners.0.push(Partner {
                connected,
                transaction: None,
            });
        }
        Ok(partners)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a transaction in each, and returns the views for the command.
    pub fn begin(&mut self, options: &BeginOptions) -> Result<Vec<AlsoBound>, Error> {
        let options = BeginOptions {
            first_try: None,
            outer: None,
            view: ViewChoice::Exact,
            ..options.clone()
        };
        let views = self.0.iter_mut().map(|one| {
            let connection = &mut one.connected.connection;
            let transaction = connection.begin(&options)?;
            let root = connection.enterable_root(&transaction)?;
            let view = transaction.view_path.clone();
            one.transaction = Some(transaction);
            Ok(AlsoBound {
                base: one.connected.root.clone(),
                view,
                root,
            })
        });
        views.collect()
    }

    /// The transactions, each with the root of its store.
    pub fn transactions(&mut self) -> impl Iterator<Item = (&mut Connected, TransactionId)> {
        self.0.iter_mut().filter_map(|one| {
            let id = one.transaction.as_ref()?.id;
            Some((&mut one.connected, id))
        })
    }

    /// Aborts all that have not ended. Those in doubt stay.
    pub fn abort(&mut self) {
        for one in &mut self.0 {
            if let Some(transaction) = one.transaction.take() {
                // Without its service it has ended, or survives in doubt.
                let _ = one.connected.connection.abort(transaction.id);
            }
        }
    }

    /// Keeps them open beyond our end.
    fn keep(&mut self, context: &Context) -> Result<(), Error> {
        for (connected, id) in self.transactions() {
            connected.connection.keep(id)?;
            let root = connected.root.display();
            let note = format!("transaction {id} of '{root}' stays open");
            context.output.note(note);
        }
        Ok(())
    }
}

/// The service of one store asks that of another for the decision, and only its owner may start it.
fn refuse_other_owner(first: &Connected, other: &Connected) -> Result<(), Error> {
    let owner = |one: &Connected| {
        let control = one.control.as_deref().unwrap_or(&one.root);
        let stat = rustix::fs::stat(control).map_err(|errno| {
            let root = one.root.display();
            Error::usage(format!("cannot look at '{root}': {}", reason(errno)))
        });
        stat.map(|stat| stat.st_uid)
    };
    let (one, two) = (owner(first)?, owner(other)?);
    match one == two {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "'{}' belongs to {} and '{}' to {}: transactions of stores with different owners cannot be \
             committed together, since the service of one could not ask that of the other",
            first.root.display(),
            describe_user(one),
            other.root.display(),
            describe_user(two)
        ))),
    }
}

/// Carries out the wish in all stores. After an error no transaction has committed, and all are open,
/// unless a service has ended: then those that have voted are in doubt.
pub fn conclude(
    context: &Context,
    (connected, transaction): (&mut Connected, &Transaction),
    partners: &mut Partners,
    (ended, wish): (Ended, Wish),
    others: Others,
) -> Result<super::Outcome, Error> {
    deviations::report(context, connected, transaction, wish)?;
    let connection = &mut connected.connection;
    let outcome = match wish {
        Wish::Commit => {
            let mut sides: Vec<Side<'_>> = vec![(connection, &connected.root, transaction.id)];
            for one in &mut partners.0 {
                if let Some(begun) = &one.transaction {
                    let Connected {
                        connection, root, ..
                    } = &mut one.connected;
                    sides.push((connection, root, begun.id));
                }
            }
            super::Outcome::Committed(commit_all(context, &mut sides, others)?)
        }
        Wish::Abort => {
            partners.abort();
            connection.abort(transaction.id)?;
            super::Outcome::Aborted
        }
        Wish::Keep => {
            partners.keep(context)?;
            connection.keep(transaction.id)?;
            super::Outcome::Kept
        }
    };
    match &outcome {
        super::Outcome::Committed(committed) => {
            super::summary::show(context, &mut connected.connection, committed);
        }
        outcome => super::report(context, transaction.id, ended, outcome),
    }
    Ok(outcome)
}

/// Returns what became of the first.
pub fn commit_all(
    context: &Context,
    sides: &mut [Side<'_>],
    others: Others,
) -> Result<Committed, Error> {
    let mut progress = |progress: Progress| note_wait(context, &progress);
    let mut decides = None;
    for (place, (connection, root, id)) in sides.iter_mut().enumerate() {
        let coordinates = connection.coordinate(*id, others, &mut progress);
        let coordinates = coordinates.map_err(|source| elsewhere(root, *id, source))?;
        if let Some(store) = coordinates {
            let root = root.as_os_str().as_bytes().to_vec();
            let coordinator = Coordinator {
                store,
                root,
                transaction: *id,
            };
            decides = Some((place, coordinator));
            break;
        }
    }
    let Some((decides, coordinator)) = decides else {
        // Nothing has changed anywhere.
        for (connection, _, id) in sides[1..].iter_mut() {
            commit(context, connection, *id, others)?;
        }
        let (connection, _, id) = &mut sides[0];
        return commit(context, connection, *id, others);
    };
    let mut voters = Vec::new();
    for place in (0..sides.len()).filter(|place| *place != decides) {
        let (connection, root, id) = &mut sides[place];
        match connection.vote(*id, &coordinator, others, &mut progress) {
            Ok(true) => voters.push(place),
            Ok(false) => {}
            Err(source) => {
                let error = elsewhere(root, *id, source);
                withdraw(context, sides, decides, &voters);
                return Err(error);
            }
        }
    }
    let (connection, root, id) = &mut sides[decides];
    let decided = match commit(context, connection, *id, others) {
        Ok(committed) => committed,
        Err(error) => {
            let error = in_store(root, error);
            if is_known(&error) {
                withdraw(context, sides, decides, &voters);
            }
            return Err(error);
        }
    };
    let mut first = Committed {
        sequence: None,
        ..decided.clone()
    };
    for (place, (connection, root, id)) in sides.iter_mut().enumerate() {
        let committed = if place == decides {
            Ok(decided.clone())
        } else if voters.contains(&place) {
            connection.commit_decided(*id, false, &mut progress)
        } else {
            // It has changed nothing.
            connection.commit(*id, &mut progress)
        };
        match committed {
            Ok(committed) if place == 0 => first = committed,
            Ok(_) => {}
            Err(error) => context.output.warn(format_args!(
                "the commit is decided, but transaction {id} of '{}' is still in doubt: {error}; \
                 its service tries again, and `atomdir resolve {id} --commit --take-mine` lands it over \
                 what others have changed there",
                root.display()
            )),
        }
    }
    Ok(first)
}

/// Opens all again that have voted, and then tells the coordinator.
fn withdraw(context: &Context, sides: &mut [Side<'_>], decides: usize, voters: &[usize]) {
    let mut are_told = true;
    for place in voters {
        let (connection, root, id) = &mut sides[*place];
        if let Err(error) = connection.withdraw_vote(*id) {
            are_told = false;
            context.output.detail(format_args!(
                "transaction {id} of '{}' is in doubt until its service has asked: {error}",
                root.display()
            ));
        }
    }
    let (connection, _, id) = &mut sides[decides];
    if are_told {
        // If it has ended, nobody needs to know.
        let _ = connection.cease_to_coordinate(*id);
    }
}

/// The error, once all transactions have been aborted because of it.
pub fn aborted(error: Error) -> Error {
    match error {
        Error::Elsewhere { store, source } => Error::Elsewhere {
            store,
            source: Box::new(aborted(*source)),
        },
        Error::Commit {
            transaction,
            source,
            ..
        } => Error::Commit {
            transaction,
            source,
            open: false,
        },
        error => error,
    }
}

/// Whether it is known that the coordinator has not committed.
fn is_known(error: &Error) -> bool {
    match error {
        Error::Elsewhere { source, .. } => is_known(source),
        Error::Commit { source, .. } => {
            let is_gone = matches!(
                source,
                CommitError::Request(RequestError::Disconnected { .. })
            );
            !is_gone && !source.is_logged()
        }
        _ => true,
    }
}

fn elsewhere(root: &Path, transaction: TransactionId, source: CommitError) -> Error {
    let error = Error::Commit {
        transaction,
        open: !source.is_logged(),
        source,
    };
    in_store(root, error)
}

fn in_store(root: &Path, error: Error) -> Error {
    Error::Elsewhere {
        store: root.to_owned(),
        source: Box::new(error),
    }
}
