//! Requests that commit transactions of several stores together (two-phase commit). The commit of one of
//! them, the coordinator, decides; the others vote before it.

use crate::connection::{Connection, Parts};
use crate::error::{CommitError, RequestError};
use atomdir_protocol::{Answer, Committed, JointRequest, Others, Progress, Request};
use atomdir_types::{Coordinator, Outcome, TransactionId};

impl Connection {
    /// From now on the transaction is committed as a whole, and durably: it is the coordinator of
    /// others. Returns the id of its store; `None`: it has nothing to commit, and cannot be it.
    pub fn coordinate(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<[u8; 16]>, CommitError> {
        let asked = JointRequest::Coordinate {
            transaction,
            others,
        };
        match self.step(asked, progress)? {
            Answer::Coordinates(store) => Ok(store),
            _ => Err(self.unexpected().into()),
        }
    }

    /// Undoes [`coordinate`](Self::coordinate). First open the others again that have voted.
    pub fn cease_to_coordinate(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Joint(JointRequest::Cease { transaction }))
    }

    /// Votes for the commit of a transaction, which becomes durable and read-only. From then on only what
    /// becomes of the coordinator ends it: the service asks for that if nobody [tells](Self::decide) it.
    /// Returns false if it has nothing to commit, and so has not voted.
    pub fn vote(
        &mut self,
        transaction: TransactionId,
        coordinator: &Coordinator,
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

    /// Opens a transaction again that has voted, since its coordinator has not committed.
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
