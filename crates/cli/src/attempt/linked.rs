//! Open transactions of several stores that are only committed together, as `begin` leaves them: whichever
//! of them the user names, verbs act on all.

use super::attach;
use super::joint::{commit_all, side, warn_in_doubt};
use crate::changes::without_dots;
use crate::context::{Connected, Context};
use crate::enter::AlsoBound;
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{
    CommitError, Committed, FailureKind, Others, Outcome, Partner, RequestError, TransactionStatus,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// All of the transactions, in the order of their begin.
#[derive(Default)]
pub struct Linked {
    pub open: Vec<Open>,
    /// The place of the one that the user has named.
    own: Option<usize>,
    missing: Vec<(Partner, Missing)>,
}

/// One that is open, and the way to its store.
pub struct Open {
    pub connected: Connected,
    pub partner: Partner,
    /// The one that decides whether it commits, if it is in doubt.
    coordinator: Option<Partner>,
}

enum Missing {
    Ended { has_committed: bool },
    NotReached(Error),
}

/// One of the transactions, and the paths that are in its store.
type InStore<'a> = (&'a mut Connected, TransactionId, Vec<PathBuf>);

/// The result in each store.
pub type Concluded = Vec<(Partner, Result<Committed, CommitError>)>;

impl Linked {
    /// Finds those that are linked with this one. Gives the connection back if none is.
    pub fn find(
        context: &Context,
        mut connected: Connected,
        transaction: TransactionId,
    ) -> Result<Linked, Box<Connected>> {
        let all = match connected.connection.status(transaction) {
            Ok(status) => status.linked,
            // The verb says so, or knows better.
            Err(_) => Vec::new(),
        };
        if all.is_empty() {
            return Err(connected.into());
        }
        let mut own = Some(connected);
        let mut linked = Linked {
            open: Vec::new(),
            own: None,
            missing: Vec::new(),
        };
        for partner in &all {
            let is_own = partner.transaction == transaction;
            let own = own.take_if(|own| is_own && own.root == root(partner));
            if own.is_some() {
                linked.own = Some(linked.open.len());
            }
            match look(context, own, partner, &all) {
                Ok(open) => linked.open.push(open),
                Err(missing) => linked.missing.push((partner.clone(), missing)),
            }
        }
        Ok(linked)
    }

    /// Like [`find`](Self::find), for the transaction that the user means.
    pub fn connect(
        context: &Context,
        named: Option<TransactionId>,
    ) -> Result<(Result<Linked, Box<Connected>>, TransactionId), Error> {
        let (connected, transaction) = context.connect_to(named)?;
        Ok((Linked::find(context, connected, transaction), transaction))
    }

    /// Fails if one has ended or cannot be reached: the others cannot be committed then.
    pub fn require_all(&mut self) -> Result<(), Error> {
        let Some((partner, missing)) = self.missing.pop() else {
            return Ok(());
        };
        let source = match missing {
            Missing::NotReached(error) => error,
            Missing::Ended { has_committed } => has_ended(&partner, has_committed),
        };
        Err(elsewhere(&partner, source))
    }

    /// Reports those that have ended or cannot be reached.
    pub fn note_missing(&self, context: &Context) {
        for (partner, missing) in &self.missing {
            let root = root(partner).display();
            match missing {
                Missing::NotReached(error) => context.output.warn(format_args!(
                    "the store '{root}' cannot be reached: {error}"
                )),
                Missing::Ended { has_committed } => context.output.warn(format_args!(
                    "in the store '{root}': {}",
                    has_ended(partner, *has_committed)
                )),
            }
        }
    }

    /// The stores in which these paths are, each with its own; without paths, all stores.
    pub fn by_store(&mut self, paths: &[PathBuf]) -> Result<Vec<InStore<'_>>, Error> {
        let own = self.own.and_then(|place| self.open.get(place));
        let own = own.map(|one| &one.connected);
        let whole = paths.iter().map(|path| match own {
            Some(own) => without_dots(&own.root.join(&own.start).join(own.out_of_view(path))),
            None => path.clone(),
        });
        let whole: Vec<PathBuf> = whole.collect();
        for path in &whole {
            if !self
                .open
                .iter()
                .any(|one| path.starts_with(&one.connected.root))
            {
                let path = path.display();
                return Err(Error::usage(format!("'{path}' is in none of the stores")));
            }
        }
        let stores = self.open.iter_mut().map(|one| {
            let in_it = whole
                .iter()
                .filter(|path| path.starts_with(&one.connected.root));
            let in_it: Vec<PathBuf> = in_it.cloned().collect();
            (&mut one.connected, one.partner.transaction, in_it)
        });
        Ok(stores
            .filter(|(_, _, in_it)| whole.is_empty() || !in_it.is_empty())
            .collect())
    }

    /// Commits all or none.
    pub fn commit(&mut self, context: &Context, others: Others) -> Result<Concluded, Error> {
        let has_committed = |(_, one): &(_, Missing)| {
            matches!(
                one,
                Missing::Ended {
                    has_committed: true
                }
            )
        };
        if self.missing.iter().any(has_committed) {
            return self.conclude(context);
        }
        self.require_all()?;
        // If some are in doubt, whoever wanted to commit them has gone just now.
        let decides = self.open.iter().find_map(|one| one.coordinator.as_ref());
        let decides = decides.and_then(|named| {
            let mut all = self.open.iter();
            all.position(|one| one.partner == *named)
        });
        let partners: Vec<Partner> = self.open.iter().map(|one| one.partner.clone()).collect();
        let sides = self.open.iter_mut().map(|one| {
            let Connected {
                connection, root, ..
            } = &mut one.connected;
            side(connection, root, one.partner.transaction)
        });
        let committed = commit_all(context, &mut sides.collect::<Vec<_>>(), decides, others)?;
        Ok(partners.into_iter().zip(committed).collect())
    }

    /// Ends what is left of a commit that was decided: its process has died.
    fn conclude(&mut self, context: &Context) -> Result<Concluded, Error> {
        let mut concluded = Vec::new();
        for one in &mut self.open {
            let id = one.partner.transaction;
            let decided = one.coordinator.as_ref().is_some_and(|named| {
                let mut missing = self.missing.iter();
                missing.any(|(partner, _)| partner == named)
            });
            let connection = &mut one.connected.connection;
            let ended = if decided {
                connection.commit_decided(id, false, &mut |_| {})
            } else if connection.changes(id)?.is_empty() {
                connection.abort(id)?;
                Ok(Committed::default())
            } else {
                return Err(elsewhere(&one.partner, has_ended(&one.partner, true)));
            };
            if let Err(error) = &ended {
                warn_in_doubt(context, (root(&one.partner), id), error);
            }
            concluded.push((one.partner.clone(), ended));
        }
        Ok(concluded)
    }

    /// Aborts all, once nobody else is in them if that is wanted. Returns how many were aborted. Those that
    /// are left cannot be committed any more.
    pub fn abort(&mut self, context: &Context, when_free: bool) -> Result<u64, Error> {
        // Those in doubt last, once the one that decides has ended.
        (self.open).sort_by_key(|one| one.coordinator.is_some());
        let mut aborted: Vec<&Partner> = Vec::new();
        let mut failed: Option<(&Partner, RequestError)> = None;
        for one in &mut self.open {
            let id = one.partner.transaction;
            let connection = &mut one.connected.connection;
            let decides = one.coordinator.as_ref();
            let withdrawn = match decides.is_some_and(|named| aborted.contains(&named)) {
                true => connection.withdraw_vote(id),
                false => Ok(()),
            };
            let ended = withdrawn.and_then(|()| match when_free {
                true => connection.abort_when_free(id),
                false => connection.abort(id),
            });
            match ended {
                Ok(()) => aborted.push(&one.partner),
                Err(error) => failed = Some((&one.partner, error)),
            }
        }
        match failed {
            Some((_, error)) if aborted.is_empty() => return Err(error.into()),
            Some((partner, error)) => context.output.warn(format_args!(
                "transaction {} of '{}' is still open, and cannot be committed any more: {error}",
                partner.transaction,
                root(partner).display()
            )),
            None => {}
        }
        let count = aborted.len() as u64;
        let unreached = self.missing.iter();
        for (partner, missing) in unreached {
            if let Missing::NotReached(error) = missing {
                context.output.warn(format_args!(
                    "transaction {} of '{}' cannot be committed any more, but may be open: {error}",
                    partner.transaction,
                    root(partner).display()
                ));
            }
        }
        Ok(count)
    }

    /// Takes the one out that the user has named.
    pub fn take_own(&mut self) -> Result<Connected, Error> {
        match self.own.take() {
            Some(place) if place < self.open.len() => Ok(self.open.remove(place).connected),
            _ => Err(Error::NoTransaction),
        }
    }

    /// Holds the others, and returns their views for a command.
    pub fn enter_others(&mut self) -> Result<Vec<AlsoBound>, Error> {
        let views = self.open.iter_mut().map(|one| {
            let (transaction, view) = attach(&mut one.connected, one.partner.transaction)?;
            Ok(AlsoBound {
                base: one.connected.root.clone(),
                path: transaction.view_path,
                view,
            })
        });
        views.collect()
    }

    /// Gives the holds back.
    pub fn leave(&mut self) {
        for one in &mut self.open {
            // The transaction or the service may have ended meanwhile.
            let _ = one.connected.connection.detach(one.partner.transaction);
        }
    }
}

/// Finds the transaction that the user means, for a command in its view, and those that are linked with it.
/// All of these must be open: in the place of a missing view the command would change the store itself.
pub fn enter_linked(
    context: &Context,
    named: Option<TransactionId>,
) -> Result<(Connected, TransactionId, Linked), Error> {
    let (found, transaction) = Linked::connect(context, named)?;
    Ok(match found {
        Err(connected) => (*connected, transaction, Linked::default()),
        Ok(mut linked) => {
            linked.require_all()?;
            (linked.take_own()?, transaction, linked)
        }
    })
}

pub fn root(partner: &Partner) -> &Path {
    Path::new(OsStr::from_bytes(&partner.root))
}

fn elsewhere(partner: &Partner, source: Error) -> Error {
    Error::Elsewhere {
        store: root(partner).to_owned(),
        source: Box::new(source),
    }
}

fn has_ended(partner: &Partner, has_committed: bool) -> Error {
    Error::PartnerEnded {
        transaction: partner.transaction,
        has_committed,
    }
}

/// Looks whether it is open, and linked with the same ones.
fn look(
    context: &Context,
    own: Option<Connected>,
    partner: &Partner,
    all: &[Partner],
) -> Result<Open, Missing> {
    let connected = match own {
        Some(own) => Ok(own),
        None => context.connect_at(root(partner)),
    };
    let mut connected = connected.map_err(Missing::NotReached)?;
    let connection = &mut connected.connection;
    let TransactionStatus {
        linked, in_doubt, ..
    } = match connection.status(partner.transaction) {
        Err(error) if error.kind() == Some(FailureKind::NoSuchTransaction) => {
            let outcome = connection.outcome(partner.store, partner.transaction);
            return Err(match outcome {
                Ok(outcome) => Missing::Ended {
                    has_committed: outcome == Outcome::Committed,
                },
                Err(error) => Missing::NotReached(error.into()),
            });
        }
        status => status.map_err(|error| Missing::NotReached(error.into()))?,
    };
    // Another store may be there now.
    if linked != all {
        let has_committed = false;
        return Err(Missing::Ended { has_committed });
    }
    Ok(Open {
        connected,
        partner: partner.clone(),
        coordinator: in_doubt.map(|in_doubt| in_doubt.coordinator),
    })
}
