//! One command in the transactions of several stores, which are committed together: two-phase commit. The
//! commit of the first that has changed anything, the coordinator, is the decision. All others vote for
//! it before: then nothing but the decision ends them. If this program dies in between, their services
//! ask the coordinator's. `linked` finds the transactions again that `begin` has left open.

use super::{
    BeginArguments, Closing, Ran, TermsArguments, Wish, deviations, native, note_landed, note_wait,
};
use crate::context::{Connected, Context};
use crate::enter::{AlsoBound, Ended};
use crate::error::Error;
use atomdir::client::{
    BeginOptions, CommitError, Committed, Connection, NotTogether, Others, Progress, RequestError,
    Side, Transaction, ViewChoice, commit_together, link, why_not_together,
};
use atomdir::{Isolation, TransactionId};
use std::path::Path;
use std::time::Duration;

/// The stores beside the first one, and the transaction in each.
#[derive(Default)]
pub struct Partners(Vec<Partner>);

struct Partner {
    connected: Connected,
    transaction: Option<Transaction>,
}

pub fn side<'a>(
    connection: &'a mut Connection,
    root: &'a Path,
    transaction: TransactionId,
) -> (Side<'a>, &'a Path) {
    let side = Side {
        connection,
        transaction,
    };
    (side, root)
}

impl Partners {
    /// Connects to the other stores that the user has named.
    pub fn connect(context: &Context, first: &Connected) -> Result<Partners, Error> {
        let mut partners = Partners::default();
        for directory in context.others() {
            let connected = context.connect_at(directory)?;
            let place_of = |one: &Connected| {
                let control = one.control.as_ref().unwrap_or(&one.root);
                (one.root.clone(), control.clone())
            };
            let before = partners.0.iter().map(|one| &one.connected);
            for before in std::iter::once(first).chain(before) {
                if let Some(why) = why_not_together(&place_of(before), &place_of(&connected)) {
                    return Err(Error::usage(why));
                }
            }
            if context.current(first).is_some() || context.current(&connected).is_some() {
                return Err(Error::usage(
                    "transactions of several stores cannot be nested: run it outside the one that this \
                     runs in",
                ));
            }
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

    /// Refuses what only a transaction of one store can do.
    pub fn refuse_alone(begin: &BeginArguments) -> Result<(), Error> {
        let refused = match begin {
            BeginArguments { outer: Some(_), .. } => "--in",
            BeginArguments {
                isolation: Isolation::Serializable,
                ..
            } => "--isolation serializable",
            _ => return Ok(()),
        };
        Err(not_in_several(refused))
    }

    /// Begins a transaction in each.
    pub fn begin(&mut self, options: &BeginOptions) -> Result<(), Error> {
        let options = BeginOptions {
            first_try: None,
            outer: None,
            view: match options.view {
                // It would lock a second store before the first one.
                ViewChoice::Exclusive => ViewChoice::Exact,
                view => view,
            },
            ..options.clone()
        };
        for one in &mut self.0 {
            one.transaction = Some(one.connected.connection.begin(&options)?);
        }
        Ok(())
    }

    /// Mounts the views for a command. Call it when a transaction has begun in every store.
    pub fn enter(&mut self, context: &Context) -> Result<Vec<AlsoBound>, Error> {
        let mut also = Vec::new();
        for one in &mut self.0 {
            let Some(transaction) = one.transaction.take() else {
                continue;
            };
            let (transaction, view) = native::mount(context, &mut one.connected, transaction)?;
            also.push(AlsoBound {
                base: one.connected.root.clone(),
                path: transaction.view_path.clone(),
                view,
            });
            one.transaction = Some(transaction);
        }
        Ok(also)
    }

    /// The services that may have something to say while a command runs.
    pub fn heard(&self) -> Vec<(&Connection, &Transaction)> {
        let heard = self.0.iter().map(|one| {
            let transaction = one.transaction.as_ref()?;
            Some((&one.connected.connection, transaction))
        });
        heard.flatten().collect()
    }

    /// Turns the native views of a command that has ended into exact ones, once nobody else is in any view,
    /// the first store's included. Fails if a commit would leave a store otherwise than the same command in
    /// a plain directory.
    pub fn close(
        &mut self,
        context: &Context,
        first: (&Connected, &Transaction),
        (ran, closing): (&Ran, &Closing),
        wish: Wish,
    ) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        // A refusal would abort transactions that are to be kept, so this waits until the others have left.
        let others = match (wish, closing.others) {
            (Wish::Keep, Others::Refuse) => Others::Wait,
            (_, others) => others,
        };
        for one in &mut self.0 {
            let Some(transaction) = &one.transaction else {
                continue;
            };
            if closing.stays_open {
                one.connected.connection.keep_on_close(transaction.id)?;
            }
            ran.close_view(context, (&one.connected, transaction), others)?;
        }
        ran.close_view(context, first, others)?;
        ran.end_writing(context)?;
        for one in &mut self.0 {
            let Some(transaction) = one.transaction.take() else {
                continue;
            };
            let taken = ran.take_other(&mut one.connected, transaction)?;
            let transaction = one.transaction.insert(taken);
            deviations::report(context, &mut one.connected, transaction, wish)?;
        }
        Ok(())
    }

    /// Links the transactions with the first store's: from now on none of them is committed alone.
    pub fn link(
        &mut self,
        connection: &mut Connection,
        first: TransactionId,
    ) -> Result<(), RequestError> {
        let mut sides = vec![Side {
            connection,
            transaction: first,
        }];
        for (connected, transaction) in self.transactions() {
            let connection = &mut connected.connection;
            sides.push(Side {
                connection,
                transaction,
            });
        }
        match sides.len() {
            1 => Ok(()),
            _ => link(&mut sides),
        }
    }

    pub fn abort_after(&mut self, age: Duration) -> Result<(), RequestError> {
        let mut all = self.transactions();
        all.try_for_each(|(connected, id)| connected.connection.abort_after(id, age))
    }

    pub fn set_terms(&mut self, terms: &TermsArguments) -> Result<(), Error> {
        let mut all = self.transactions();
        all.try_for_each(|(connected, id)| terms.set(&mut connected.connection, id, None))
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
    pub fn keep(&mut self) -> Result<(), Error> {
        for (connected, id) in self.transactions() {
            connected.connection.keep(id)?;
            connected.connection.detach(id)?;
        }
        Ok(())
    }
}

pub fn not_in_several(what: &str) -> Error {
    Error::usage(format!("{what} is not possible in several stores at once"))
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
            let mut sides = vec![side(connection, &connected.root, transaction.id)];
            for (connected, id) in partners.transactions() {
                sides.push(side(&mut connected.connection, &connected.root, id));
            }
            let committed = commit_all(context, &mut sides, None, others)?;
            let first = committed.into_iter().next();
            // If it is in doubt, nobody knows the number of its commit yet.
            super::Outcome::Committed(first.and_then(Result::ok).unwrap_or_default())
        }
        Wish::Abort => {
            partners.abort();
            connection.abort(transaction.id)?;
            super::Outcome::Aborted
        }
        Wish::Keep => {
            partners.keep()?;
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

/// Commits all or none, and warns of those that are in doubt for now. `decides` is the place of the one that
/// decides, if some have voted for it before.
pub fn commit_all(
    context: &Context,
    sides: &mut [(Side<'_>, &Path)],
    decides: Option<usize>,
    others: Others,
) -> Result<Vec<Result<Committed, CommitError>>, Error> {
    let mut progress = |progress: Progress| note_wait(context, &progress);
    let roots: Vec<&Path> = sides.iter().map(|(_, root)| *root).collect();
    let mut sides: Vec<Side<'_>> = (sides.iter_mut())
        .map(|(side, _)| Side {
            connection: &mut *side.connection,
            transaction: side.transaction,
        })
        .collect();
    let committed = commit_together(&mut sides, decides, others, &mut progress);
    let committed = committed.map_err(|NotTogether { place, error }| {
        elsewhere(roots[place], sides[place].transaction, error)
    })?;
    for ((side, root), committed) in sides.iter().zip(roots).zip(&committed) {
        match committed {
            Ok(committed) => note_landed(context, committed),
            Err(error) => warn_in_doubt(context, (root, side.transaction), error),
        }
    }
    Ok(committed)
}

pub(super) fn warn_in_doubt(
    context: &Context,
    (root, id): (&Path, TransactionId),
    error: &CommitError,
) {
    context.output.warn(format_args!(
        "the commit is decided, but transaction {id} of '{}' is still in doubt: {error}; its service \
         tries again, and `atomdir resolve {id} --commit --take-mine` lands it over what others have \
         changed there",
        root.display()
    ));
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
