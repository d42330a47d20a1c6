//! One method for each request. A [`Connection`] carries one at a time.

use crate::connection::{Connection, Parts};
use crate::{
    CommitError, ConnectError, Current, RequestError, Transaction, ViewRootError, view_root,
};
use atomdir_protocol::{
    Answer, BeginRequest, ChangeLine, CheckReport, CommitSummary, Committed, Conflicts, Durability,
    FailureKind, Isolation, LOG_LENGTH_MAX, Progress, Request, Sequence, ServiceStatus,
    SnapshotObject, StopReport, TransactionId, TransactionStatus, ViewChoice,
};
use std::os::fd::OwnedFd;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub struct BeginOptions {
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    /// The first of several tries, of which this is one, begun on the same
    /// connection: with early conflicts the oldest wins.
    pub first_try: Option<TransactionId>,
    /// What the log calls it; cut to [`LABEL_LENGTH_MAX`](atomdir_protocol::LABEL_LENGTH_MAX) bytes.
    pub label: Vec<u8>,
    /// It lives until it is committed or aborted or the service ends; else it
    /// is aborted when its last holder's connection closes.
    pub detached: bool,
    /// It is nested in this one, whose isolation and durability it shares. One
    /// transaction at a time can be: another is refused with
    /// [`FailureKind::Busy`].
    pub outer: Option<TransactionId>,
    pub view: ViewChoice,
    /// The service opens the view's root for [`Transaction::root`]: for who does
    /// not see its mount of views, as in a container. A begin takes several times
    /// as long with it.
    pub opened: bool,
    /// Nobody but this connection enters, changes or commits it, until it is given
    /// up with [`Connection::keep`]. Its programs get no way to the service.
    pub sealed: bool,
}

/// What a commit does about others who hold the transaction, and about a
/// transaction that is nested in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Others {
    /// It fails with [`FailureKind::Busy`].
    #[default]
    Refuse,
    /// It waits until they are gone.
    Wait,
    /// It ends their views, and aborts what is nested.
    End,
}

/// How often a commit that waits asks again.
const WAIT_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct SnapshotContents {
    pub object: SnapshotObject,
    /// Of a file that is not [`SnapshotObject::too_long`]; else empty.
    pub contents: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct CommitDetails {
    pub summary: CommitSummary,
    pub changes: Vec<ChangeLine>,
}

#[derive(Debug, Clone)]
pub struct Checked {
    pub report: CheckReport,
    pub problems: Vec<String>,
}

impl Connection {
    pub fn begin(&mut self, options: &BeginOptions) -> Result<Transaction, RequestError> {
        let mut label = options.label.clone();
        label.truncate(atomdir_protocol::LABEL_LENGTH_MAX);
        let request = Request::Begin(BeginRequest {
            isolation: options.isolation,
            durability: options.durability,
            conflicts: options.conflicts,
            first_try: options.first_try,
            label,
            detached: options.detached,
            outer: options.outer,
            view: options.view,
            opened: options.opened,
            sealed: options.sealed,
        });
        self.view(&request, options.opened)
    }

    /// The view of a transaction that is already open. This connection holds
    /// it from now on.
    pub fn attach(&mut self, transaction: TransactionId) -> Result<Transaction, RequestError> {
        let hold = true;
        self.view(&Request::Attach { transaction, hold }, true)
    }

    /// Its view, to look at: it may be committed or aborted meanwhile.
    pub fn open_view(&mut self, transaction: TransactionId) -> Result<Transaction, RequestError> {
        let hold = false;
        self.view(&Request::Attach { transaction, hold }, true)
    }

    /// Gives back this connection's hold. If it was the last one, and the
    /// transaction is not detached, it is aborted; returns whether it was.
    pub fn detach(&mut self, transaction: TransactionId) -> Result<bool, RequestError> {
        match self.ask(&Request::Detach { transaction })? {
            (Answer::Aborted(count), _) => Ok(count > 0),
            _ => Err(self.unexpected()),
        }
    }

    /// Says which transaction this program runs in: the connection acts on that
    /// one and on those within it.
    pub(crate) fn enter(&mut self, current: &Current) -> Result<(), ConnectError> {
        let request = Request::Enter {
            transaction: current.transaction,
            secret: current.secret.clone(),
        };
        self.nothing(&request).map_err(|error| match error {
            RequestError::Failed(failure) => ConnectError::Failed(failure),
            _ => ConnectError::NotReachedWithin {
                store: current.store.clone(),
            },
        })
    }

    /// Makes the transaction's view read-only, so that a commit lands exactly
    /// what [`changes`](Self::changes) says. [`keep`](Self::keep) undoes it.
    pub fn freeze(
        &mut self,
        transaction: TransactionId,
        others: Others,
    ) -> Result<(), RequestError> {
        let force = others == Others::End;
        loop {
            match self.nothing(&Request::Freeze { transaction, force }) {
                Err(error) if error.kind() == Some(FailureKind::Busy) && others == Others::Wait => {
                    std::thread::sleep(WAIT_INTERVAL);
                }
                result => return result,
            }
        }
    }

    /// Names the present state, for [`roll_back`](Self::roll_back); an older
    /// savepoint of that name is forgotten. A commit forgets all, also one
    /// that fails.
    pub fn set_savepoint(
        &mut self,
        transaction: TransactionId,
        name: &[u8],
    ) -> Result<(), RequestError> {
        let name = name.to_vec();
        self.nothing(&Request::SetSavepoint { transaction, name })
    }

    /// Makes everything as it was at the savepoint, which stays; later ones go.
    pub fn roll_back(
        &mut self,
        transaction: TransactionId,
        savepoint: &[u8],
    ) -> Result<(), RequestError> {
        let savepoint = savepoint.to_vec();
        self.nothing(&Request::RollBack {
            transaction,
            savepoint,
        })
    }

    /// The transaction's view was native, and no program can change anything in
    /// it any more: from now on it is exact.
    pub fn take_over(&mut self, transaction: TransactionId) -> Result<Transaction, RequestError> {
        self.view(&Request::TakeOver { transaction }, true)
    }

    /// Lets a transaction outlive its holders, of whom this connection is none
    /// any more.
    pub fn keep(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Keep { transaction })
    }

    /// After an error the transaction is still open, with two exceptions. When the error
    /// [is logged](CommitError::is_logged), or there is no such transaction, it has ended.
    /// After [`RequestError::Disconnected`] nobody can say.
    pub fn commit(
        &mut self,
        transaction: TransactionId,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        self.commit_with(transaction, Others::Refuse, progress)
    }

    /// As [`commit`](Self::commit), when others may hold it.
    pub fn commit_with(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        loop {
            match self.try_commit(transaction, others == Others::End, progress) {
                Err(error) if error.is_busy() && others == Others::Wait => {
                    std::thread::sleep(WAIT_INTERVAL);
                }
                result => return result,
            }
        }
    }

    fn try_commit(
        &mut self,
        transaction: TransactionId,
        force: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let mut parts = Parts::default();
        let request = Request::Commit { transaction, force };
        match self.ask_with(&request, &mut parts, progress) {
            Ok((Answer::Committed(committed), _)) => Ok(committed),
            Ok(_) => Err(self.unexpected().into()),
            Err(RequestError::Failed(failure)) if failure.kind == FailureKind::Conflict => {
                Err(CommitError::Conflict {
                    conflicts: parts.conflicts,
                    failure,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub fn abort(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        match self.ask(&Request::Abort { transaction })? {
            (Answer::Aborted(_), _) => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// Every transaction this user may abort. Returns how many there were.
    pub fn abort_all(&mut self) -> Result<u64, RequestError> {
        match self.ask(&Request::AbortAll)? {
            (Answer::Aborted(count), _) => Ok(count),
            _ => Err(self.unexpected()),
        }
    }

    pub fn status(
        &mut self,
        transaction: TransactionId,
    ) -> Result<TransactionStatus, RequestError> {
        match self.ask(&Request::Status { transaction })? {
            (Answer::Transaction(status), _) => Ok(status),
            _ => Err(self.unexpected()),
        }
    }

    /// What commit would land, sorted by path.
    pub fn changes(&mut self, transaction: TransactionId) -> Result<Vec<ChangeLine>, RequestError> {
        match self.ask(&Request::Changes { transaction })? {
            (Answer::Nothing, parts) => Ok(parts.changes),
            _ => Err(self.unexpected()),
        }
    }

    /// What `path`, relative to the store's root, was in the transaction's
    /// snapshot; a file's contents only up to `contents_length_max` bytes.
    pub fn snapshot_object(
        &mut self,
        transaction: TransactionId,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>, RequestError> {
        let request = Request::SnapshotObject {
            transaction,
            path: path.to_vec(),
            contents_length_max,
        };
        match self.ask(&request)? {
            (Answer::SnapshotObject(object), parts) => Ok(object.map(|object| SnapshotContents {
                object,
                contents: parts.contents,
            })),
            _ => Err(self.unexpected()),
        }
    }

    /// The open transactions this user may see: their own; all, for root.
    pub fn transactions(&mut self) -> Result<Vec<TransactionStatus>, RequestError> {
        match self.ask(&Request::List)? {
            (Answer::Nothing, parts) => Ok(parts.transactions),
            _ => Err(self.unexpected()),
        }
    }

    /// At most `limit` commits older than `before`, newest first.
    pub fn log(
        &mut self,
        before: Option<Sequence>,
        limit: u64,
    ) -> Result<Vec<CommitSummary>, RequestError> {
        let (mut before, mut left) = (before, limit);
        let mut commits: Vec<CommitSummary> = Vec::new();
        while left > 0 {
            // The service answers with no more at once.
            let limit = left.min(LOG_LENGTH_MAX);
            let part = match self.ask(&Request::Log { before, limit })? {
                (Answer::Nothing, parts) => parts.commits,
                _ => return Err(self.unexpected()),
            };
            let count = part.len() as u64;
            commits.extend(part);
            before = commits.last().map(|commit| commit.sequence);
            if count < limit {
                break;
            }
            left -= count;
        }
        Ok(commits)
    }

    pub fn show(&mut self, sequence: Sequence) -> Result<CommitDetails, RequestError> {
        match self.ask(&Request::Show { sequence })? {
            (Answer::Commit(summary), parts) => Ok(CommitDetails {
                summary,
                changes: parts.changes,
            }),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes lazy commits durable.
    pub fn sync(&mut self) -> Result<(), RequestError> {
        self.nothing(&Request::Sync)
    }

    /// Flushes the base and drops the log's tail.
    pub fn checkpoint(&mut self) -> Result<(), RequestError> {
        self.nothing(&Request::Checkpoint)
    }

    pub fn check(&mut self) -> Result<Checked, RequestError> {
        match self.ask(&Request::Check)? {
            (Answer::Checked(report), parts) => Ok(Checked {
                report,
                problems: parts.problems,
            }),
            _ => Err(self.unexpected()),
        }
    }

    pub fn service_status(&mut self) -> Result<ServiceStatus, RequestError> {
        match self.ask(&Request::ServiceStatus)? {
            (Answer::Service(status), _) => Ok(*status),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the service end after so long without a transaction or a connection;
    /// `None`: it stays until it is stopped.
    pub fn set_idle_time(&mut self, idle: Option<Duration>) -> Result<(), RequestError> {
        let idle_ms = idle.map(|idle| idle.as_millis().try_into().unwrap_or(u64::MAX));
        self.ask(&Request::SetIdleTime { idle_ms }).map(drop)
    }

    /// Ends the service, aborting what is open. Returns when nothing of it is
    /// left: no mount, no socket, no lock, no process.
    pub fn stop(mut self) -> Result<StopReport, RequestError> {
        let process = self.service_process();
        match self.ask(&Request::Stop)? {
            (Answer::Stopped(report), _) => {
                process.wait_for_end();
                Ok(report)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn view(&mut self, request: &Request, opened: bool) -> Result<Transaction, RequestError> {
        let mut parts = Parts::default();
        match self.ask_with(request, &mut parts, &mut |_| {})? {
            (Answer::Begun(begun), root) if root.is_some() == opened => {
                if let Some(root) = &root {
                    view_root::check_file_system(root).map_err(|source| self.bad_view(source))?;
                }
                Transaction::new(begun, root, self).ok_or_else(|| self.unexpected())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// The view's root, for a command that runs in it or has it bound over the store:
    /// unlike what [`Transaction::root`] gives, it has been checked to be a view of this
    /// service, mounted in this mount namespace.
    pub fn enterable_root(&self, transaction: &Transaction) -> Result<OwnedFd, RequestError> {
        let root = transaction.enterable_root();
        root.map_err(|source| self.bad_view(source))
    }

    fn bad_view(&self, source: ViewRootError) -> RequestError {
        RequestError::View {
            store: self.store().to_owned(),
            source,
        }
    }

    pub(crate) fn nothing(&mut self, request: &Request) -> Result<(), RequestError> {
        match self.ask(request)? {
            (Answer::Nothing, _) => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<(Answer, Parts), RequestError> {
        let mut parts = Parts::default();
        let (answer, _) = self.ask_with(request, &mut parts, &mut |_| {})?;
        Ok((answer, parts))
    }
}
