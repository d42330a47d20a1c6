//! One method for each request. A [`Connection`] carries one request at a time.

use crate::connection::{Connection, Parts};
use crate::current::Current;
use crate::error::CommitError;
use crate::error::RequestError;
use crate::transaction::Transaction;
use crate::view_root::ViewRootError;
use crate::{ConnectError, lent, surroundings, view_root};
use atomdir_protocol::{
    Answer, BeginOptions, BeginRequest, CommitRequest, Committed, LABEL_LENGTH_MAX, Others, Past,
    Portion, Progress, Request, ServiceStatus, SnapshotObject, StopReport, TransactionStatus,
    WhileOpen,
};
use atomdir_types::{ChangeLine, Checked, CommitDetails, FileRead, Sequence, Side, TransactionId};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// An object of a transaction's snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotContents {
    /// The object.
    pub object: SnapshotObject,
    /// The contents of a file that is not [`SnapshotObject::too_long`]; otherwise empty.
    pub contents: Vec<u8>,
}

/// A commit of so much of a transaction.
#[derive(Debug, Clone)]
pub struct CommittedPortion {
    /// The commit.
    pub committed: Committed,
    /// The changes that the [`Portion`] lists, sorted by path.
    pub changes: Vec<ChangeLine>,
}

/// The request that begins such a transaction. Its label is cut to the length that requests may
/// have.
pub(crate) fn begin_request(options: &BeginOptions, past: Option<Past>) -> Request {
    let mut options = options.clone();
    options.label.truncate(LABEL_LENGTH_MAX);
    Request::Begin(BeginRequest { options, past })
}

impl Connection {
    /// Begins a transaction.
    pub fn begin(&mut self, options: &BeginOptions) -> Result<Transaction, RequestError> {
        self.begin_reporting(options, &mut |_| {})
    }

    /// Like [`begin`](Self::begin), for a begin that may wait.
    pub fn begin_reporting(
        &mut self,
        options: &BeginOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transaction, RequestError> {
        let request = begin_request(options, None);
        self.view(&request, options.opened, progress)
    }

    /// Returns the view of an open transaction. This connection then holds the transaction.
    pub fn attach(&mut self, transaction: TransactionId) -> Result<Transaction, RequestError> {
        let hold = true;
        self.view(&Request::Attach { transaction, hold }, true, &mut |_| {})
    }

    /// Returns the view to look at, without a hold: the transaction may end meanwhile.
    pub fn open_view(&mut self, transaction: TransactionId) -> Result<Transaction, RequestError> {
        let hold = false;
        self.view(&Request::Attach { transaction, hold }, true, &mut |_| {})
    }

    /// Gives back this connection's hold. If it was the last one and the transaction is not
    /// detached, the transaction is aborted; returns whether it was.
    pub fn detach(&mut self, transaction: TransactionId) -> Result<bool, RequestError> {
        match self.ask(&Request::Detach { transaction })? {
            (Answer::Aborted(count), _) => Ok(count > 0),
            _ => Err(self.unexpected()),
        }
    }

    /// Reports which transaction this program runs in. The connection then acts only on that
    /// transaction and on those within it.
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

    /// Makes the transaction's view read-only, so that a commit lands exactly what
    /// [`changes`](Self::changes) lists. [`keep`](Self::keep) undoes it.
    pub fn freeze(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), RequestError> {
        let request = Request::Freeze {
            transaction,
            others,
        };
        match self.ask_with(&request, &mut Parts::default(), progress)? {
            (Answer::Nothing, _) => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// Names the present state, for [`roll_back`](Self::roll_back), and drops an older savepoint of
    /// that name. A commit drops all savepoints, even if it fails.
    pub fn set_savepoint(
        &mut self,
        transaction: TransactionId,
        name: &[u8],
    ) -> Result<(), RequestError> {
        let name = name.to_vec();
        self.nothing(&Request::SetSavepoint { transaction, name })
    }

    /// Restores the state at the savepoint. The savepoint stays; later ones are dropped.
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

    /// Lets a transaction outlive its holders, and gives up this connection's hold.
    pub fn keep(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Keep { transaction })
    }

    /// Like [`keep`](Self::keep), but only when this connection closes, for whatever reason, while
    /// the transaction is still open.
    pub fn keep_on_close(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::KeepOnClose { transaction })
    }

    /// Notes the program's reads of files, in a transaction that was begun with
    /// [`declares_reads`](BeginOptions::declares_reads).
    pub fn declare_reads(
        &mut self,
        transaction: TransactionId,
        files: Vec<FileRead>,
    ) -> Result<(), RequestError> {
        self.nothing(&Request::DeclareReads { transaction, files })
    }

    /// After an error the transaction is still open, with two exceptions. If the error [is
    /// logged](CommitError::is_logged), or there is no such transaction, it has ended. After
    /// [`RequestError::Disconnected`] its state is unknown.
    pub fn commit(
        &mut self,
        transaction: TransactionId,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let committed = self.commit_portion(transaction, &Portion::All, Others::Refuse, progress);
        committed.map(|done| done.committed)
    }

    /// Everything that others have changed is a conflict.
    pub(crate) fn commit_if_untouched(
        &mut self,
        transaction: TransactionId,
        portion: &Portion,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CommittedPortion, CommitError> {
        let mut portion = portion.clone();
        if let Portion::Part {
            label: Some(label), ..
        } = &mut portion
        {
            label.truncate(LABEL_LENGTH_MAX);
        }
        let request = Request::Commit(CommitRequest {
            transaction,
            others,
            portion,
        });
        let mut parts = Parts::default();
        match self.ask_with(&request, &mut parts, progress) {
            Ok((Answer::Committed(committed), _)) => Ok(CommittedPortion {
                committed,
                changes: parts.changes,
            }),
            Ok(_) => Err(self.unexpected().into()),
            Err(error) => Err(CommitError::new(error, parts)),
        }
    }

    /// Aborts a transaction.
    pub fn abort(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.end(transaction, false)
    }

    /// Like [`abort`](Self::abort), when nobody else is in the transaction any more.
    pub fn abort_when_free(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.end(transaction, true)
    }

    fn end(&mut self, transaction: TransactionId, wait: bool) -> Result<(), RequestError> {
        match self.ask(&Request::Abort { transaction, wait })? {
            (Answer::Aborted(_), _) => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// Aborts all transactions that this user may abort. Returns how many there were.
    pub fn abort_all(&mut self) -> Result<u64, RequestError> {
        match self.ask(&Request::AbortAll)? {
            (Answer::Aborted(count), _) => Ok(count),
            _ => Err(self.unexpected()),
        }
    }

    /// Describes an open transaction.
    pub fn status(
        &mut self,
        transaction: TransactionId,
    ) -> Result<TransactionStatus, RequestError> {
        match self.ask(&Request::Status { transaction })? {
            (Answer::Transaction(status), _) => Ok(*status),
            _ => Err(self.unexpected()),
        }
    }

    /// Lists the changes that a commit would land, sorted by path.
    pub fn changes(&mut self, transaction: TransactionId) -> Result<Vec<ChangeLine>, RequestError> {
        match self.ask(&Request::Changes { transaction })? {
            (Answer::Nothing, parts) => Ok(parts.changes),
            _ => Err(self.unexpected()),
        }
    }

    /// Returns `path`, relative to the store's root, as it was in the transaction's snapshot; with
    /// a file's contents if they have at most `contents_length_max` bytes.
    pub fn snapshot_object(
        &mut self,
        transaction: TransactionId,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>, RequestError> {
        self.object_of((transaction, Side::Snapshot), path, contents_length_max)
    }

    /// Like [`snapshot_object`](Self::snapshot_object), but includes changes that others have made
    /// since the transaction began.
    pub fn newest_object(
        &mut self,
        transaction: TransactionId,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>, RequestError> {
        self.object_of((transaction, Side::Newest), path, contents_length_max)
    }

    /// The object that this side of a transaction has at a path.
    pub fn object_of(
        &mut self,
        (transaction, side): (TransactionId, Side),
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>, RequestError> {
        let request = Request::SnapshotObject {
            transaction,
            side,
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

    /// Lists the open transactions that this user may see: their own, or all for root.
    pub fn transactions(&mut self) -> Result<Vec<TransactionStatus>, RequestError> {
        match self.ask(&Request::List)? {
            (Answer::Nothing, parts) => Ok(parts.transactions),
            _ => Err(self.unexpected()),
        }
    }

    /// Describes a commit.
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

    /// Mounts the guard over the store's own path, unless it is mounted. `syncs`: from now on,
    /// what a call through it changes is flushed before the call returns.
    pub fn mount_guard(&mut self, syncs: bool) -> Result<(), RequestError> {
        self.nothing(&Request::MountGuard { syncs })
    }

    /// Unmounts the guard. Fails if there is none.
    pub fn unmount_guard(&mut self) -> Result<(), RequestError> {
        self.nothing(&Request::UnmountGuard)
    }

    /// Flushes the base and drops the log's tail.
    pub fn checkpoint(&mut self) -> Result<(), RequestError> {
        self.nothing(&Request::Checkpoint)
    }

    /// Looks for damage in the store.
    pub fn check(&mut self) -> Result<Checked, RequestError> {
        match self.ask(&Request::Check)? {
            (Answer::Checked(report), parts) => Ok(Checked {
                report,
                problems: parts.problems,
            }),
            _ => Err(self.unexpected()),
        }
    }

    /// Describes the service.
    pub fn service_status(&mut self) -> Result<ServiceStatus, RequestError> {
        match self.ask(&Request::ServiceStatus)? {
            (Answer::Service(status), _) => Ok(*status),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes the service end after this time without a transaction or a connection. With `None` it
    /// stays until it is stopped.
    pub fn set_idle_time(&mut self, idle: Option<Duration>) -> Result<(), RequestError> {
        let idle_ms = idle.map(|idle| idle.as_millis().try_into().unwrap_or(u64::MAX));
        self.ask(&Request::SetIdleTime { idle_ms }).map(drop)
    }

    /// Makes everything in the view of a transaction durable, if it survives its service.
    pub fn flush(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        self.nothing(&Request::Flush { transaction })
    }

    /// Ends the service. Returns when nothing of the service is left: no mount, no socket, no lock,
    /// no process. While a transaction is open, this fails with
    /// [`FailureKind::InUse`](crate::FailureKind::InUse).
    pub fn stop(self) -> Result<StopReport, RequestError> {
        self.stop_service(WhileOpen::Refuse)
    }

    /// Like [`stop`](Self::stop), and aborts open transactions.
    pub fn stop_and_abort(self) -> Result<StopReport, RequestError> {
        self.stop_service(WhileOpen::Abort)
    }

    /// Like [`stop`](Self::stop), and leaves open transactions to the next service. Fails with
    /// [`FailureKind::InUse`] while one is open that does not survive.
    pub fn stop_and_keep(self) -> Result<StopReport, RequestError> {
        self.stop_service(WhileOpen::Keep)
    }

    fn stop_service(mut self, open: WhileOpen) -> Result<StopReport, RequestError> {
        let process = self.service_process();
        match self.ask(&Request::Stop { open })? {
            (Answer::Stopped(report), _) => {
                process.wait_for_end();
                Ok(report)
            }
            _ => Err(self.unexpected()),
        }
    }

    pub(crate) fn view(
        &mut self,
        request: &Request,
        opened: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transaction, RequestError> {
        self.view_with(request, opened, &mut Parts::default(), progress)
    }

    pub(crate) fn view_with(
        &mut self,
        request: &Request,
        opened: bool,
        parts: &mut Parts,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Transaction, RequestError> {
        let begins = matches!(request, Request::Begin(_));
        let refusal = surroundings::refusal(self.store(), &self.restrictions);
        if let Some(refusal) = refusal.filter(|_| begins) {
            return Err(RequestError::Failed(refusal));
        }
        match self.ask_with(request, parts, progress)? {
            (Answer::Begun(begun), Some(socket)) if begun.lent => {
                let mount = lent::receive(self, request, &socket)?;
                Transaction::new(begun, Some(mount), self).ok_or_else(|| self.unexpected())
            }
            // An overlay over the base has no snapshot that could be opened.
            (Answer::Begun(begun), root) if root.is_some() == (opened && !begun.is_over_base()) => {
                if let Some(root) = &root {
                    view_root::check_file_system(root).map_err(|source| self.bad_view(source))?;
                }
                Transaction::new(begun, root, self).ok_or_else(|| self.unexpected())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Returns the view's root, for a command that runs in it or for binding it over the store.
    /// Unlike [`Transaction::root`], this checks that the directory is a view of this service,
    /// mounted in this mount namespace.
    pub fn enterable_root(&self, transaction: &Transaction) -> Result<OwnedFd, RequestError> {
        let root = self.bring_root(transaction);
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

    pub(crate) fn ask(&mut self, request: &Request) -> Result<(Answer, Parts), RequestError> {
        let mut parts = Parts::default();
        let (answer, _) = self.ask_with(request, &mut parts, &mut |_| {})?;
        Ok((answer, parts))
    }
}
