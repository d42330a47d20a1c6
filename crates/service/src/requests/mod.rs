//! Translates each request into calls of the engine.

pub(crate) mod annotate;
pub(crate) mod commit;
pub(crate) mod conflicts;
mod exclusive;
mod itself;
mod joint;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod nesting;
pub(crate) mod parts;
pub(crate) mod refresh;
pub(crate) mod sealing;
pub(crate) mod serving;
pub(crate) mod sharing;
mod side_access;
pub(crate) mod status;
pub(crate) mod undo;

use crate::clients::connection::Connection;
use crate::clients::replies::{Outcome, Unanswered, send_changes, send_parts};
use crate::requests::side_access::SideReader;
use crate::rights::convert;
use crate::rights::permissions::{Peer, Reach, no_such_transaction};
use crate::service::Service;
use crate::transactions::aside;
use crate::transactions::expiry;
use crate::transactions::leases;
use crate::transactions::notices::{self, How};
use crate::transactions::secret::Secret;
use crate::transactions::survival;
use crate::transactions::{OpenTransaction, Transaction};
use crate::views::inner_socket;
use crate::views::lending;
use crate::views::merges;
use crate::views::native;
use crate::views::native::Choice;
use atomdir_disk::reason;
use atomdir_engine::{BeginOptions, Checked};
use atomdir_protocol::{
    Answer, BeginRequest, Begun, Deviation, Failure, FailureKind, FileRead, LABEL_LENGTH_MAX,
    Reply, Request, TransactionId, TransactionStatus,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Unanswered>;

fn require_reach(reach: Reach, request: &Request) -> std::result::Result<(), Failure> {
    if reach == Reach::Nothing && !matches!(request, Request::Enter { .. }) {
        let message =
            "the first request on this socket must name the transaction that the program runs in";
        return Err(Failure::new(FailureKind::NotPermitted, message));
    }
    Ok(())
}

pub(crate) fn handle(
    service: &Service,
    connection: &mut Connection,
    request: Request,
) -> Result<Outcome> {
    require_reach(connection.peer.reach, &request)?;
    service.access.check(&connection.peer, &request)?;
    connection.walls.check(&request)?;
    let answer = match request {
        Request::Begin(begin) => return begin_transaction(service, connection, begin),
        Request::Attach { transaction, hold } => {
            return attach(service, connection, transaction, hold);
        }
        Request::Detach { transaction } => sharing::detach(service, connection, transaction)?,
        Request::TakeOver {
            transaction,
            opened,
        } => return take_over(service, connection, transaction, opened),
        native @ (Request::CloseView { .. }
        | Request::MergeSteps { .. }
        | Request::Merged { .. }) => {
            return merges::handle(service, connection, native);
        }
        Request::Keep { transaction } => sharing::keep(service, connection, transaction)?,
        Request::KeepOnClose { transaction } => {
            sharing::keep_on_close(service, connection, transaction)?
        }
        Request::Commit(asked) => commit::commit(service, connection, &asked)?,
        Request::AbortPart { transaction, paths } => {
            parts::abort(service, connection, transaction, &paths)?
        }
        Request::ListConflicts { transaction, again } => {
            conflicts::list(service, connection, transaction, again)?
        }
        Request::Refresh(asked) => refresh::refresh(service, connection, &asked)?,
        Request::SetSavepoint { transaction, name } => {
            nesting::set_savepoint(service, connection, transaction, &name)?
        }
        Request::RollBack {
            transaction,
            savepoint,
        } => nesting::roll_back(service, connection, transaction, &savepoint)?,
        Request::Abort { transaction, wait } => match wait {
            true => sharing::abort_when_free(service, connection, transaction)?,
            false => abort(service, &connection.peer, transaction)?,
        },
        Request::AbortAll => abort_all(service, &connection.peer),
        Request::Status { transaction } => status::answer(service, &connection.peer, transaction)?,
        Request::Changes { transaction } => changes(service, connection, transaction)?,
        Request::SnapshotObject {
            transaction,
            side,
            path,
            contents_length_max,
        } => {
            let one = service.transactions.find(transaction, &connection.peer)?;
            SideReader::new(connection, &one, side).send(&path, contents_length_max)?
        }
        Request::DeclareReads { transaction, files } => {
            declare_reads(service, connection, transaction, &files)?
        }
        Request::Lock(request) => locks::lock(service, connection, request)?,
        Request::Unlock { transaction, paths } => {
            locks::unlock(service, connection, transaction, paths.as_deref())?
        }
        Request::AbortAfter {
            transaction,
            age_ms,
        } => {
            let age = Duration::from_millis(age_ms);
            expiry::abort_after(service, &connection.peer, transaction, age)?
        }
        Request::List => list(service, connection)?,
        Request::ListEnded { news } => notices::list(service, connection, news)?,
        Request::Annotate(said) => annotate::handle(service, connection, said)?,
        Request::Log(wanted) => log::list(service, connection, wanted)?,
        Request::Show { sequence } => log::show(service, connection, sequence)?,
        Request::Sync => aside::sync(service, &connection.peer)?,
        Request::Flush { transaction } => survival::flush(service, connection, transaction)?,
        Request::Checkpoint => checkpoint(service, &connection.peer)?,
        Request::Check => check(service, connection)?,
        Request::Prune { older_than_ms } => undo::prune(service, &connection.peer, older_than_ms)?,
        asked @ (Request::Surroundings
        | Request::LendMount { .. }
        | Request::ServiceStatus
        | Request::SetIdleTime { .. }
        | Request::MountGuard { .. }
        | Request::UnmountGuard
        | Request::Stop { .. }) => return itself::handle(service, connection, asked),
        Request::Enter {
            transaction,
            secret,
        } => inner_socket::enter(service, connection, transaction, &secret)?,
        Request::Freeze {
            transaction,
            others,
        } => sealing::freeze(service, connection, transaction, others)?,
        Request::Joint(asked) => joint::handle(service, connection, asked)?,
    };
    Ok(Outcome::Last(Reply::Done(answer)))
}

fn declare_reads(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    files: &[FileRead],
) -> Result<Answer> {
    let one = (service.transactions).control(id, &connection.peer, connection.id)?;
    let declared = one.transaction.declare_reads(files);
    declared.map_err(|errno| match errno {
        Errno::STALE if !one.transaction.is_open() => no_such_transaction(id),
        errno => {
            let why = reason(errno);
            let message = format!("cannot note what transaction {id} has read: {why}");
            Failure::new(FailureKind::Io, message)
        }
    })?;
    Ok(Answer::Nothing)
}

fn checkpoint(service: &Service, peer: &Peer) -> Result<Answer> {
    peer.require_administer("checkpoint the store")?;
    let done = service.store.checkpoint();
    done.map_err(store_failure(peer))?;
    Ok(Answer::Nothing)
}

pub(super) fn abort(service: &Service, peer: &Peer, id: TransactionId) -> Result<Answer> {
    if survival::abort_stranded(service, peer, id) {
        return Ok(Answer::Aborted(1));
    }
    let one = service.transactions.find_to_end(id, peer)?;
    if let Some(coordinator) = one.transaction.coordinator() {
        let error = atomdir_engine::CommitError::InDoubt(Box::new(coordinator));
        return Err(joint::in_doubt(id, error.to_string()).into());
    }
    let removed = service.transactions.remove(id);
    match service.abort_by_force(removed, How::Aborted { by: peer.user }) {
        0 => Err(no_such_transaction(id).into()),
        aborted => Ok(Answer::Aborted(aborted)),
    }
}

/// Aborts the peer's own transactions; for root, all.
fn abort_all(service: &Service, peer: &Peer) -> Answer {
    let visible = service.transactions.visible(peer);
    let removed = visible
        .iter()
        .filter(|one| peer.may_use(one.transaction.owner()))
        .flat_map(|one| service.transactions.remove(one.id()));
    let stranded = survival::abort_all_stranded(service, peer);
    let how = How::Aborted { by: peer.user };
    Answer::Aborted(service.abort_by_force(removed.collect(), how) + stranded)
}

fn no_random_bytes(errno: Errno) -> Failure {
    let message = format!(
        "cannot get random bytes from the kernel: {errno}",
        errno = reason(errno)
    );
    Failure::new(FailureKind::Internal, message)
}

fn begin_transaction(
    service: &Service,
    connection: &mut Connection,
    BeginRequest {
        options: begin,
        past,
    }: BeginRequest,
) -> Result<Outcome> {
    let peer = &connection.peer;
    if begin.label.len() > LABEL_LENGTH_MAX {
        let message = format!("a label holds at most {LABEL_LENGTH_MAX} bytes");
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    peer.require_views()?;
    undo::check(&begin, past.as_ref(), peer)?;
    nesting::check(&begin, past.as_ref())?;
    sealing::refuse_detached(begin.detached, begin.sealed)?;
    let choice = native::choose(service, &begin, peer)?;
    service.transactions.check_room(peer.user)?;
    let begun_within = match peer.reach {
        Reach::Within(transaction) => Some(transaction),
        Reach::All | Reach::Nothing => None,
    };
    let secret = Secret::new().map_err(no_random_bytes)?;
    // Refuse early: a transaction without a view would be useless. A command in a native view needs
    // the mount, too, for the views of nested transactions: where the mounts of the system are not
    // shared, its mount namespace never shows a mount that is made later.
    service.views.mount(peer.user)?;
    // Before the begin: others may commit between it and the request that it survive.
    let _held = match begin.detached {
        true => service.store.hold_past().ok(),
        false => None,
    };
    let options = BeginOptions {
        owner: peer.user,
        isolation: begin.isolation,
        durability: begin.durability,
        conflicts: begin.conflicts,
        first_try: connection.first_try(begin.first_try),
        label: begin.label,
    };
    let transaction = match (begin.outer, begin.fork_of, &past) {
        (Some(outer), ..) => nesting::begin(service, connection, (outer, begin.wait), options)?,
        (None, Some(of), _) => nesting::fork(service, connection, of, options)?,
        (None, None, Some(past)) => undo::begin(service, connection, past, options)?,
        (None, None, None) => match &choice {
            Choice::Exclusive => exclusive::begin(service, connection, options)?,
            Choice::Native { .. } | Choice::Exact { .. } => {
                let begun = service.store.begin_published(options);
                begun.map_err(|error| convert::begin_failure(&error, peer))?
            }
        },
    };
    if let Some(budget) = service.budgets.of(transaction.owner()) {
        transaction.set_budget(budget);
    }
    let id = transaction.id();
    if begin.declares_reads {
        let expected = transaction.expect_declared_reads();
        expected.map_err(|_| no_such_transaction(id))?;
    }
    if let Some(user) = peer.less_than_service() {
        let restricted = transaction.restrict_to(user);
        restricted.map_err(|_| no_such_transaction(id))?;
    }
    let shown = native::prepare(&transaction, choice, peer).and_then(|choice| {
        let root = show_view(service, &transaction, begin.opened)?;
        Ok((choice, root))
    });
    let holder = (connection.id, connection.peer.process);
    let one = OpenTransaction {
        transaction: transaction.clone(),
        detached: begin.detached,
        commits_while_held: begin.commits_while_held,
        holders: (!begin.detached).then_some(holder).into_iter().collect(),
        controller: begin.sealed.then_some(connection.id),
        kept_after: None,
        begun_within,
        mounter: transaction.is_lower().then_some(connection.id),
        is_closed: false,
        secret,
    };
    let (choice, root) = match shown {
        Ok(shown) if service.transactions.add(&one) => shown,
        shown => {
            service.abort(vec![one]);
            return Err(shown
                .err()
                .unwrap_or_else(|| no_such_transaction(id))
                .into());
        }
    };
    service.notices.opened(&transaction);
    service.maintenance.wake();
    if begin.detached {
        survival::survive(service, &one);
    }
    connection.first_begun.get_or_insert(id);
    Ok(view(service, &transaction, choice, Vec::new(), root))
}

fn show_view(
    service: &Service,
    transaction: &Arc<Transaction>,
    opened: bool,
) -> std::result::Result<Option<OwnedFd>, Failure> {
    // An overlay over the base needs no snapshot.
    if transaction.is_over_base() {
        return Ok(None);
    }
    if opened {
        return show_opened(service, transaction).map(Some);
    }
    service.views.show(transaction).map(|()| None)
}

fn show_opened(
    service: &Service,
    transaction: &Arc<Transaction>,
) -> std::result::Result<OwnedFd, Failure> {
    service.views.show(transaction)?;
    let opened = service.views.open(transaction);
    opened.inspect_err(|_| service.views.hide(transaction))
}

/// Takes over a native view after its programs have ended: reads the changes from
/// its upper layer, and shows them in an exact view.
///
/// Only the process that mounted the overlay knows that the programs have ended, so
/// the request must come from its connection.
fn take_over(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    opened: bool,
) -> Result<Outcome> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    let mut deviations = Vec::new();
    if one.transaction.is_lower() {
        lending::close(service, connection, id, false)?;
        service.views.hide(&one.transaction);
        // After the take-over other connections may commit it.
        service.views.expect(&one.transaction)?;
        let taken = one.transaction.take_over_upper();
        let taken = taken.map_err(|errno| match errno {
            Errno::STALE if !one.transaction.is_open() => no_such_transaction(id),
            errno => native::unreadable(id, errno),
        });
        deviations = taken.inspect_err(|_| service.views.hide(&one.transaction))?;
        transactions.wake_waiters(&one);
    }
    let root = match opened {
        true => Some(show_opened(service, &one.transaction)?),
        false => service.views.announce(&one.transaction).map(|()| None)?,
    };
    Ok(view(service, &one.transaction, EXACT, deviations, root))
}

fn attach(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    hold: bool,
) -> Result<Outcome> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = match transactions.control(id, peer, connection.id) {
        // A frozen transaction cannot change any more, so anyone who may use it may
        // look.
        Err(_) if !hold && is_frozen(service, connection, id) => transactions.find(id, peer)?,
        controlled => controlled?,
    };
    connection.peer.require_views()?;
    if one.transaction.is_lower()
        && let Some(lent) = lending::lend(service, connection, &one, hold)?
    {
        return Ok(lent);
    }
    let root = service.views.open(&one.transaction)?;
    if hold {
        sharing::hold(service, connection, id);
    }
    Ok(view(
        service,
        &one.transaction,
        EXACT,
        Vec::new(),
        Some(root),
    ))
}

fn is_frozen(service: &Service, connection: &Connection, id: TransactionId) -> bool {
    let found = service.transactions.find(id, &connection.peer);
    found.is_ok_and(|one| one.transaction.is_frozen())
}

const EXACT: Choice = Choice::Exact { because: None };

fn view(
    service: &Service,
    transaction: &Transaction,
    choice: Choice,
    deviations: Vec<Deviation>,
    root: Option<OwnedFd>,
) -> Outcome {
    let id = transaction.id();
    let (layers, exact_because) = match choice {
        Choice::Native { is_required } => (native::layers(transaction, is_required), None),
        Choice::Exclusive => (native::layers(transaction, true), None),
        Choice::Exact { because } => (None, because),
    };
    let begun = Begun {
        transaction: id,
        view_path: service.views.path(transaction).into_os_string().into_vec(),
        layers,
        exact_because,
        deviations,
        lent: false,
        within: inner_socket::way_in(service, id),
    };
    let reply = Reply::Done(Answer::Begun(begun));
    match root {
        Some(root) => Outcome::LastWith(reply, root),
        None => Outcome::Last(reply),
    }
}

fn changes(service: &Service, connection: &Connection, id: TransactionId) -> Result<Answer> {
    let one = service.transactions.find(id, &connection.peer)?;
    // The reply lists the changes that a commit would find or, if writes were lost with a mount,
    // the remaining ones.
    leases::gather(service, &connection.stream, &one.transaction)?;
    let lines = one
        .transaction
        .changed_paths()
        .map_err(|errno| transaction_failure(id, errno))?;
    send_changes(&connection.stream, lines)?;
    Ok(Answer::Nothing)
}

fn list(service: &Service, connection: &Connection) -> Result<Answer> {
    let visible = service.transactions.visible(&connection.peer);
    // Right after a commit the service has yet to forget its transaction.
    let open = visible.iter().filter(|one| !one.transaction.has_ended());
    let statuses = open.map(|one| status::transaction(service, one));
    let statuses = statuses.chain(status::list_stranded(service, &connection.peer));
    let length = |status: &TransactionStatus| {
        let locks = status.locks.iter().map(|lock| 32 + lock.path.len());
        64 + status.label.len() + status.view_path.len() + locks.sum::<usize>()
    };
    send_parts(&connection.stream, statuses, length, Reply::Transactions)?;
    Ok(Answer::Nothing)
}

fn check(service: &Service, connection: &Connection) -> Result<Answer> {
    connection.peer.require_administer("check the store")?;
    let Checked { report, problems } = service.store.check();
    send_parts(&connection.stream, problems, String::len, Reply::Problems)?;
    Ok(Answer::Checked(report))
}

pub(crate) fn transaction_failure(id: TransactionId, errno: Errno) -> Failure {
    match errno {
        Errno::STALE => no_such_transaction(id),
        errno => Failure::new(
            FailureKind::Io,
            format!(
                "cannot read the changes of transaction {id}: {errno}",
                errno = reason(errno)
            ),
        ),
    }
}

pub(crate) fn store_failure(peer: &Peer) -> impl Fn(atomdir_engine::StoreError) -> Unanswered {
    |error| Unanswered::Failed(convert::store_failure(&error, peer))
}
