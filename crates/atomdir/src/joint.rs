//! Transactions of several stores that are committed together (two-phase commit). The commit of one of
//! them, the coordinator, decides; the others vote before it.

use crate::accounts::describe_user;
use crate::connection::{Connection, Parts};
use crate::error::{CommitError, RequestError};
use atomdir_protocol::{Answer, Committed, JointRequest, Others, Progress, Request};
use atomdir_types::{Outcome, Partner, TransactionId};
use std::path::{Path, PathBuf};

/// One of the transactions, and the way to its store.
#[derive(Debug)]
pub struct Side<'a> {
    /// To the store's service.
    pub connection: &'a mut Connection,
    /// The transaction there.
    pub transaction: TransactionId,
}

/// Why no transaction has committed.
#[derive(Debug)]
pub struct NotTogether {
    /// The place of the transaction that could not be committed.
    pub place: usize,
    /// Why it could not.
    pub error: CommitError,
}

/// Links new transactions: from now on they are only committed together, also by others. None of them may
/// be detached yet.
pub fn link(sides: &mut [Side<'_>]) -> Result<(), RequestError> {
    let introduced = sides
        .iter_mut()
        .map(|side| side.connection.introduce(side.transaction));
    let all = introduced.collect::<Result<Vec<Partner>, _>>()?;
    for side in sides {
        let transaction = side.transaction;
        let all = all.clone();
        let asked = JointRequest::Link { transaction, all };
        side.connection.nothing(&Request::Joint(asked))?;
    }
    Ok(())
}

/// Commits all, or none. `decides` is the place of the one that decides, if some have voted for it before.
///
/// If it returns a list, the commit is decided, and the list says what became of each: one with an error is
/// in doubt until its service has asked for the decision. After an error all are open, with one exception:
/// if the service of the one that decides has ended meanwhile, the others are in doubt until theirs have
/// asked.
pub fn commit_together(
    sides: &mut [Side<'_>],
    decides: Option<usize>,
    others: Others,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Result<Committed, CommitError>>, NotTogether> {
    let mut attempt = Attempt {
        unchanged: Vec::new(),
        voters: Vec::new(),
        coordinator: None,
    };
    match attempt.decide(sides, decides, others, progress) {
        Ok(decided) => Ok(attempt.conclude(sides, decided, progress)),
        Err(failed) => {
            // Otherwise it may have committed all the same.
            if is_known(&failed.error) {
                attempt.give_up(sides);
            }
            Err(failed)
        }
    }
}

/// What the transactions have answered so far, by their places.
struct Attempt {
    unchanged: Vec<usize>,
    voters: Vec<usize>,
    coordinator: Option<usize>,
}

impl Attempt {
    /// Returns the commit of the coordinator; `None`: nothing has changed anywhere.
    fn decide(
        &mut self,
        sides: &mut [Side<'_>],
        decides: Option<usize>,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Committed>, NotTogether> {
        let at = |place: usize| move |error: CommitError| NotTogether { place, error };
        let candidates = decides.map_or(0..sides.len(), |place| place..place + 1);
        for place in candidates {
            let Side {
                connection,
                transaction,
            } = &mut sides[place];
            let coordinates = connection.coordinate(*transaction, others, progress);
            if coordinates.map_err(at(place))? {
                self.coordinator = Some(place);
                break;
            }
            self.unchanged.push(place);
        }
        let Some(decides) = self.coordinator else {
            return Ok(None);
        };
        let coordinator = sides[decides]
            .connection
            .introduce(sides[decides].transaction);
        let coordinator = coordinator.map_err(|error| at(decides)(error.into()))?;
        let waiting = (0..sides.len()).filter(|place| *place != decides);
        for place in waiting
            .filter(|place| !self.unchanged.contains(place))
            .collect::<Vec<_>>()
        {
            let Side {
                connection,
                transaction,
            } = &mut sides[place];
            let voted = connection.vote(*transaction, &coordinator, others, progress);
            match voted.map_err(at(place))? {
                true => self.voters.push(place),
                false => self.unchanged.push(place),
            }
        }
        let Side {
            connection,
            transaction,
        } = &mut sides[decides];
        let committed = connection.commit_coordinator(*transaction, progress);
        committed.map(Some).map_err(at(decides))
    }

    /// The commit is decided.
    fn conclude(
        &self,
        sides: &mut [Side<'_>],
        decided: Option<Committed>,
        progress: &mut dyn FnMut(Progress),
    ) -> Vec<Result<Committed, CommitError>> {
        let each = sides.iter_mut().enumerate().map(|(place, side)| {
            if self.coordinator == Some(place) {
                return Ok(decided.clone().unwrap_or_default());
            }
            if self.voters.contains(&place) {
                return (side.connection).commit_decided(side.transaction, false, progress);
            }
            side.connection.abort(side.transaction)?;
            Ok(Committed::default())
        });
        each.collect()
    }

    /// Opens all again, and at last the coordinator: until then no vote counts for another commit.
    fn give_up(&self, sides: &mut [Side<'_>]) {
        let mut are_open = true;
        for place in self.voters.iter().chain(&self.unchanged) {
            let side = &mut sides[*place];
            are_open &= side.connection.give_up(side.transaction).is_ok();
        }
        if let Some(place) = self.coordinator.filter(|_| are_open) {
            let side = &mut sides[place];
            // If it has ended, the others need not know.
            let _ = side.connection.give_up(side.transaction);
        }
    }
}

/// Whether it is known that the coordinator has not committed.
fn is_known(error: &CommitError) -> bool {
    let is_gone = matches!(
        error,
        CommitError::Request(RequestError::Disconnected { .. })
    );
    !is_gone && !error.is_logged()
}

/// Why transactions of two stores cannot be committed together, if they cannot: each is its root and its
/// control directory.
pub fn why_not_together(one: &(PathBuf, PathBuf), other: &(PathBuf, PathBuf)) -> Option<String> {
    let ((root, control), (other_root, other_control)) = (one, other);
    if root.starts_with(other_root) || other_root.starts_with(root) {
        let other = other_root.display();
        return Some(format!(
            "'{other}' is the same store as another that is named, or one is inside the other"
        ));
    }
    let owner = |control: &Path| rustix::fs::stat(control).map(|stat| stat.st_uid);
    let (owner, other_owner) = match (owner(control), owner(other_control)) {
        (Ok(owner), Ok(other_owner)) => (owner, other_owner),
        (Err(errno), _) | (_, Err(errno)) => {
            let reason = atomdir_disk::reason(errno);
            return Some(format!("cannot look at one of the stores: {reason}"));
        }
    };
    // The service of one asks that of the other for the decision, and only its owner may start it.
    (owner != other_owner).then(|| {
        format!(
            "'{}' belongs to {} and '{}' to {}: transactions of stores with different owners cannot be \
             committed together, since the service of one could not ask that of the other",
            root.display(),
            describe_user(owner),
            other_root.display(),
            describe_user(other_owner)
        )
    })
}

impl Connection {
    /// The name by which services of other stores know the transaction.
    pub fn introduce(&mut self, transaction: TransactionId) -> Result<Partner, RequestError> {
        match self.ask(&Request::Joint(JointRequest::Introduce { transaction }))? {
            (Answer::Introduced(partner), _) => Ok(partner),
            _ => Err(self.unexpected()),
        }
    }

    /// From now on the transaction is read-only, and only [committed](Self::commit_coordinator) as the
    /// coordinator of others. Returns false if it has nothing to commit, and cannot be it.
    pub fn coordinate(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, CommitError> {
        let asked = JointRequest::Coordinate {
            transaction,
            others,
        };
        match self.step(asked, progress)? {
            Answer::Voted(coordinates) => Ok(coordinates),
            _ => Err(self.unexpected().into()),
        }
    }

    /// Commits the coordinator, once the others have voted.
    pub fn commit_coordinator(
        &mut self,
        transaction: TransactionId,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        match self.step(JointRequest::Commit { transaction }, progress)? {
            Answer::Committed(committed) => Ok(committed),
            _ => Err(self.unexpected().into()),
        }
    }

    /// Undoes [`coordinate`](Self::coordinate) and [`vote`](Self::vote), if this connection has asked for
    /// them. The coordinator comes last.
    pub fn give_up(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Joint(JointRequest::GiveUp { transaction }))
    }

    /// Votes for the commit of a transaction, which becomes durable and read-only. From then on only what
    /// becomes of the coordinator ends it: the service asks for that if nobody [tells](Self::commit_decided)
    /// it. Returns false if it has nothing to commit, and so has not voted.
    pub fn vote(
        &mut self,
        transaction: TransactionId,
        coordinator: &Partner,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, CommitError> {
        let asked = JointRequest::Vote {
            transaction,
            coordinator: coordinator.clone(),
            others,
        };
        match self.step(asked, progress)? {
            Answer::Voted(has_voted) => Ok(has_voted),
            _ => Err(self.unexpected().into()),
        }
    }

    /// Commits a transaction that has voted, since its coordinator has committed. After an error it is
    /// still in doubt. `take_mine`: its changes replace what programs outside have changed since.
    pub fn commit_decided(
        &mut self,
        transaction: TransactionId,
        take_mine: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let asked = JointRequest::Decide {
            transaction,
            committed: true,
            take_mine,
        };
        match self.step(asked, progress)? {
            Answer::Committed(committed) => Ok(committed),
            _ => Err(self.unexpected().into()),
        }
    }

    /// Opens a transaction again that has voted, whatever becomes of its coordinator.
    pub fn withdraw_vote(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Joint(JointRequest::Decide {
            transaction,
            committed: false,
            take_mine: false,
        }))
    }

    /// What has become of a transaction in the store that has this id.
    pub fn outcome(
        &mut self,
        store: [u8; 16],
        transaction: TransactionId,
    ) -> Result<Outcome, RequestError> {
        let asked = JointRequest::Outcome { store, transaction };
        match self.ask(&Request::Joint(asked))? {
            (Answer::Outcome(outcome), _) => Ok(outcome),
            _ => Err(self.unexpected()),
        }
    }

    fn step(
        &mut self,
        asked: JointRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Answer, CommitError> {
        let mut parts = Parts::default();
        let answer = self.ask_with(&Request::Joint(asked), &mut parts, progress);
        answer
            .map(|(answer, _)| answer)
            .map_err(|error| CommitError::new(error, parts))
    }
}
