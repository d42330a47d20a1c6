//! Transactions that begin with something of the past: undo, and views of it.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::commit::{send_conflicts, steps_to};
use crate::requests::store_failure;
use crate::rights::permissions::{Peer, Reach};
use crate::rights::{convert, discretion};
use crate::service::Service;
use crate::transactions::Transaction;
use atomdir::hosting::{prune_limits, sync};
use atomdir_disk::{Errno, LinuxDisk, reason};
use atomdir_engine::{
    BeginOptions, ChangedBy, CommitError, Conflict, Sequence, TreePath, UndoError,
};
use atomdir_protocol::{
    Answer, Failure, FailureKind, Past, PastView, TransactionId, Undo, ViewChoice,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Held while an undo of a user is begun whom the settings merely list.
static UNDO_OF_USERS: Mutex<()> = Mutex::new(());

type Shown = atomdir_engine::Past<LinuxDisk>;

/// Refuses impossible or forbidden requests before a transaction is begun. Only the store's owner
/// and root may undo any commit. Others may undo their own: see `own_paths`. They may not look at
/// the past: they might not have been allowed to read it then.
pub(crate) fn check(
    begin: &atomdir_protocol::BeginOptions,
    past: Option<&Past>,
    peer: &Peer,
) -> Result<(), Failure> {
    let what = match past {
        None => return Ok(()),
        Some(Past::Undo(_)) => "undo commits",
        Some(Past::View(_)) => "look at the past",
        Some(Past::Restore(_)) => "restore files from the past",
    };
    let is_undo = matches!(past, Some(Past::Undo(_)));
    if !is_undo || peer.reach != Reach::All {
        peer.require_administer(what)?;
    }
    let refused = |message: String| Err(Failure::new(FailureKind::BadRequest, message));
    if begin.outer.is_some() {
        return refused(format!("a transaction within another one cannot {what}"));
    }
    if begin.view != ViewChoice::Exact {
        return refused(format!("to {what} takes an exact view"));
    }
    Ok(())
}

pub(crate) fn begin(
    service: &Service,
    connection: &Connection,
    past: &Past,
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let reported = past.reported();
    let mut as_now = Vec::new();
    let mut own = OwnPaths::All;
    let mut meter = steps_to(&connection.stream);
    let begun = match past {
        Past::Undo(undo) => {
            own = own_paths(service, &connection.peer, undo)?;
            // The records of all commits since are in memory meanwhile.
            let _alone = matches!(own, OwnPaths::These(_)).then(|| sync::lock(&UNDO_OF_USERS));
            let user = connection.peer.less_than_service();
            let undone =
                (service.store).undo_reporting(undo, user.as_ref(), options.clone(), &mut meter);
            undone.map(|undone| {
                as_now = undone.sided;
                undone.transaction
            })
        }
        Past::Restore(restore) => {
            let (commit, paths) = (restore.commit, &restore.paths);
            service
                .store
                .restore_reporting(commit, paths, options.clone(), &mut meter)
        }
        Past::View(view) => match look(service, connection, view, options.clone())? {
            Ok(shown) if shown.not_as_then.is_empty() || view.outside_as_now => {
                as_now = shown.not_as_then;
                Ok(shown.transaction)
            }
            Ok(shown) => {
                service.store.abort(&shown.transaction);
                Err(UndoError::Conflict(shown.not_as_then))
            }
            Err(error) => Err(error),
        },
    };
    let begun = begun.and_then(|transaction| {
        let changed = match reported {
            Some(commits) => service
                .store
                .changed_outside(&transaction, commits, options),
            None => Ok(Vec::new()),
        };
        match changed {
            Ok(changed) => as_now.extend(changed),
            Err(error) => {
                service.store.abort(&transaction);
                return Err(error);
            }
        }
        Ok(transaction)
    });
    match begun {
        Ok(transaction) => {
            let as_now = own.seen(service, &connection.peer, as_now);
            report(service, connection, transaction, (past, as_now))
        }
        Err(error) => Err(refused(service, connection, past, (error, &own))),
    }
}

/// The answer to a request that failed. `own`: the paths that the peer may learn.
fn refused(
    service: &Service,
    connection: &Connection,
    past: &Past,
    (error, own): (UndoError, &OwnPaths),
) -> Unanswered {
    let peer = &connection.peer;
    let error = own.seen_in(service, peer, error);
    let message = error.to_string();
    let failure = match error {
        UndoError::Conflict(conflicts) => {
            let conflicts = own.seen(service, peer, conflicts);
            let failure = match past {
                Past::Undo(undo) => conflict_failure(undo, &conflicts),
                Past::View(_) => outside_failure(conflicts.len()),
                Past::Restore(_) => unknown_failure(conflicts.len()),
            };
            if let Err(error) = send_conflicts(service, connection, conflicts) {
                return error;
            }
            failure
        }
        UndoError::NotTaken { .. } => Failure::new(FailureKind::Unsupported, message).with_hint(
            "`--take-theirs=PATH` leaves the later change of this path as it is, and undoes the rest",
        ),
        UndoError::NotLeftOut { .. } => Failure::new(FailureKind::Unsupported, message).with_hint(
            "`atomdir undo COMMIT -- PATH` undoes only some paths, `--skip PATH` leaves \
                 out a directory",
        ),
        UndoError::NotYours { .. } => Failure::new(FailureKind::NotPermitted, message)
            .with_hint("`--skip PATH` leaves it out; root can undo the commit"),
        UndoError::NotKept(_) | UndoError::NotYet(_) => {
            Failure::new(FailureKind::NoSuchCommit, message)
                .with_hint("`atomdir log` lists the commits, `atomdir config` how much is kept")
        }
        UndoError::AlreadyUndone { by, .. } => Failure::new(FailureKind::BadRequest, message)
            .with_hint(format!(
                "leave it out, or bring back what it changed by `atomdir undo {by}`"
            )),
        UndoError::Absent { .. } => Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir at COMMIT -- ls` lists what was there"),
        UndoError::Untouched { .. } => Failure::new(FailureKind::NoSuchCommit, message).with_hint(
            "`atomdir show COMMIT` lists what a commit changed; a part of a directory that a \
                 commit made or removed whole comes and goes with `atomdir restore`",
        ),
        UndoError::Begin(error) => convert::begin_failure(&error, peer),
        UndoError::Store(error) => convert::store_failure(&error, peer),
        UndoError::Io { errno, .. } if errno == Errno::ACCESS => {
            Failure::new(FailureKind::NotPermitted, message)
                .with_hint("its permissions have changed since; root can undo the commit")
        }
        _ => Failure::new(FailureKind::Io, message),
    };
    failure.into()
}

/// The paths of which a peer may learn that they exist.
enum OwnPaths {
    All,
    /// Those that their own commits have changed, and those that they can list themselves.
    These(Vec<Vec<u8>>),
}

/// Checks that a peer whom the store's settings merely list undoes only commits of their own.
fn own_paths(service: &Service, peer: &Peer, undo: &Undo) -> Result<OwnPaths, Unanswered> {
    if peer.may_administer() {
        return Ok(OwnPaths::All);
    }
    let mut asked: BTreeSet<Sequence> = undo.commits.iter().copied().collect();
    let mut paths = Vec::new();
    let mut foreign = None;
    let listed = service.store.for_each_commit(|commit| {
        if !asked.remove(&commit.summary.sequence) {
            return;
        }
        if commit.summary.user != peer.user {
            foreign.get_or_insert(commit.summary.sequence);
            return;
        }
        for line in &commit.changes {
            paths.push(line.path.to_bytes());
            paths.extend(line.from.as_ref().map(TreePath::to_bytes));
        }
    });
    listed.map_err(store_failure(peer))?;
    if let Some(commit) = foreign {
        let what = format!("undo commit {commit}, which is another user's");
        peer.require_administer(&what)?;
    }
    if let Some(unknown) = asked.first() {
        let message = format!("no commit {unknown} in the log");
        return Err(Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir log` shows those there are")
            .into());
    }
    Ok(OwnPaths::These(paths))
}

impl OwnPaths {
    fn seen_path(&self, service: &Service, peer: &Peer, path: Vec<u8>) -> Vec<u8> {
        match self {
            OwnPaths::All => path,
            OwnPaths::These(own) => discretion::path(&service.access, peer, &path, own).path,
        }
    }

    fn seen(&self, service: &Service, peer: &Peer, conflicts: Vec<Conflict>) -> Vec<Conflict> {
        let seen = |one: Conflict| Conflict {
            path: self.seen_path(service, peer, one.path),
            ..one
        };
        conflicts.into_iter().map(seen).collect()
    }

    fn seen_in(&self, service: &Service, peer: &Peer, error: UndoError) -> UndoError {
        let seen = |path: String| {
            let path = self.seen_path(service, peer, path.into_bytes());
            String::from_utf8_lossy(&path).into_owned()
        };
        match error {
            UndoError::NotTaken { path, reason } => UndoError::NotTaken {
                path: seen(path),
                reason,
            },
            UndoError::NotLeftOut { path, reason } => UndoError::NotLeftOut {
                path: seen(path),
                reason,
            },
            UndoError::NotYours { path } => UndoError::NotYours { path: seen(path) },
            UndoError::Io { path, errno } => UndoError::Io {
                path: seen(path),
                errno,
            },
            error => error,
        }
    }
}

/// Sends what is shown, or stays, as it is now.
fn report(
    service: &Service,
    connection: &Connection,
    transaction: Arc<Transaction>,
    (past, mut as_now): (&Past, Vec<Conflict>),
) -> Result<Arc<Transaction>, Unanswered> {
    as_now.retain(|one| past.concerns(&one.path));
    as_now.dedup();
    if as_now.is_empty() {
        return Ok(transaction);
    }
    let sent = send_conflicts(service, connection, as_now);
    if let Err(error) = sent {
        service.store.abort(&transaction);
        return Err(error);
    }
    Ok(transaction)
}

fn look(
    service: &Service,
    connection: &Connection,
    view: &PastView,
    options: BeginOptions,
) -> Result<Result<Shown, UndoError>, Failure> {
    let commit = view.commit;
    let Some(beside) = view.beside else {
        return Ok(service.store.past(commit, options));
    };
    let other = service.transactions.find(beside, &connection.peer)?;
    if other.transaction.past().is_none() {
        let message = format!("transaction {beside} is no view of the past");
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    let store = &service.store;
    Ok(store.past_beside(&other.transaction, commit, options))
}

/// Forgets the history of commits older than this, or older than the store's settings say.
pub(crate) fn prune(
    service: &Service,
    peer: &Peer,
    older_than_ms: Option<u64>,
) -> Result<Answer, Failure> {
    peer.require_administer("forget commits")?;
    let age = older_than_ms.map(Duration::from_millis);
    let limits = prune_limits(&service.access.control, age).map_err(|errno| {
        let why = reason(errno);
        let message = format!("cannot find out the store's file system: {why}");
        Failure::new(FailureKind::Io, message)
    })?;
    let pruned = service.store.prune(&limits.now);
    let kept = pruned.map_err(|error| convert::store_failure(&error, peer))?;
    Ok(Answer::History(limits.configured.map(|_| kept)))
}

fn unknown_failure(count: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "nothing is restored: outside writers have changed what commits changed as well, so that \
         it is not known how it was, in {count} {places}"
    );
    Failure::new(FailureKind::Conflict, message)
        .with_hint("name other paths, below or beside these")
}

/// The failure of a commit of a view of the past.
pub(crate) fn read_only(id: TransactionId, error: &CommitError) -> Failure {
    Failure::new(FailureKind::Unsupported, error.to_string())
        .with_hint(format!("`atomdir abort {id}` ends it"))
}

fn outside_failure(count: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "the past cannot be shown: outside writers have changed what commits changed as well, in \
         {count} {places}"
    );
    Failure::new(FailureKind::Conflict, message).with_hint(
        "with --outside-as-now these are shown as they are now, unless outside writers have moved \
         files about",
    )
}

fn conflict_failure(undo: &Undo, conflicts: &[Conflict]) -> Failure {
    let is_outside = |one: &&Conflict| matches!(one.by, ChangedBy::Outside);
    let outside = conflicts.iter().filter(is_outside).count();
    let paths: BTreeSet<&[u8]> = conflicts.iter().map(|one| &one.path[..]).collect();
    let places = match paths.len() {
        1 => "one path".to_owned(),
        count => format!("{count} paths"),
    };
    let message =
        format!("nothing is undone: what it would take back was changed again later, at {places}");
    let mut ways = vec![
        "`--take-theirs` leaves that as it is and undoes the rest, `--take-mine` replaces it with what \
         was there before, `--skip PATH` leaves a path out"
            .to_owned(),
    ];
    if outside < conflicts.len() {
        ways.push("undo the later commits as well, as in `atomdir undo FIRST..LAST`".to_owned());
    }
    ways.push("undo only some paths: `atomdir undo COMMIT -- PATH`".to_owned());
    if outside > 0 {
        let first = undo.commits.iter().map(|commit| commit.0).min();
        let before = first.map_or(0, |first| first.saturating_sub(1));
        ways.push(format!(
            "replace what outside writers have changed: `atomdir restore {before} -- PATH`, if that \
             is still known"
        ));
    }
    Failure::new(FailureKind::Conflict, message).with_hint(ways.join(", or "))
}
