//! Several processes in one transaction.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::undo;
use crate::rights::permissions::Reach;
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::refusals;
use crate::views::lending;
use crate::views::native::require_exact;
use atomdir_engine::CommitError;
use atomdir_protocol::{Answer, Failure, FailureKind, Others, TransactionId};

pub(crate) fn hold(service: &Service, connection: &Connection, id: TransactionId) {
    let process = connection.peer.process;
    service.transactions.hold(id, connection.id, process);
}

/// Lets a transaction outlive its holders.
pub(crate) fn keep(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Failure> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    service.keep(&one, connection.id);
    Ok(Answer::Nothing)
}

pub(crate) fn keep_on_close(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Failure> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    transactions.control(id, peer, connection.id)?;
    transactions.keep_on_close(id, connection.id);
    Ok(Answer::Nothing)
}

pub(crate) fn detach(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    service.transactions.find(id, &connection.peer)?;
    let lent = service.transactions.lent_to(connection.id);
    let unheld = service.transactions.release(id, connection.id);
    for (_, mounter) in lent.iter().filter(|(lent, _)| *lent == id) {
        lending::left(service, id, *mounter);
    }
    Ok(Answer::Aborted(service.abort(unheld)))
}

/// Finds a transaction of which the connection may commit a part: see [`claim`].
pub(crate) fn claim_part(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<OpenTransaction, Failure> {
    let one = service
        .transactions
        .control(id, &connection.peer, connection.id)?;
    match one.commits_while_held && others != Others::End {
        // Its programs wait during the commit, and its view shows the same afterwards. Of what they
        // have changed in a native view the engine knows nothing yet.
        true => require_exact(&one).map(|()| one),
        false => claim(service, connection, id, others),
    }
}

/// Finds a transaction that the connection may commit, or freeze for a commit:
/// nothing is nested in it, and no other connection holds it.
pub(crate) fn claim(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<OpenTransaction, Failure> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    if let Some(at) = one.transaction.past() {
        return Err(undo::read_only(id, &CommitError::Past { at }));
    }
    let force = others == Others::End;
    refuse_own_end(&one, connection, force)?;
    require_exact(&one)?;
    clear_the_way(service, &one, connection, force)?;
    Ok(one)
}

/// If the request is to wait for others, repeats the attempt until nobody else uses
/// the transaction.
pub(crate) fn when_free<T>(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
    mut attempt: impl FnMut() -> Result<T, Unanswered>,
) -> Result<T, Unanswered> {
    let waits = match others {
        Others::Refuse => false,
        Others::Wait => true,
        // They need a moment to leave a native view.
        Others::End => lending::cut_off(service, connection, id)?,
    };
    if !waits {
        return attempt();
    }
    let waiters = &service.transactions.waiters;
    waiters.outlast(&connection.stream, id, attempt)
}

/// Aborts a transaction when no other connection holds it any more.
pub(super) fn abort_when_free(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    when_free(service, connection, id, Others::Wait, || {
        if let Ok(one) = service.transactions.find_to_end(id, &connection.peer) {
            refuse_while_others_hold(&one, connection)?;
        }
        super::abort(service, &connection.peer, id)
    })
}

/// A command cannot force the end of the transaction that it runs in: the program
/// that started the command waits for its exit code, and decides.
fn refuse_own_end(
    one: &OpenTransaction,
    connection: &Connection,
    force: bool,
) -> Result<(), Failure> {
    let runs_in_it = connection.peer.reach == Reach::Within(one.id());
    if force && runs_in_it && one.holders.keys().any(|id| *id != connection.id) {
        let message = format!(
            "this command runs in transaction {}, and only the program that started the command \
             can commit it; it is still open",
            one.id()
        );
        return Err(Failure::new(FailureKind::NotPermitted, message)
            .with_hint("let the command end, or commit outside of the transaction"));
    }
    Ok(())
}

/// With `force`, aborts nested transactions and takes the view from other holders.
fn clear_the_way(
    service: &Service,
    one: &OpenTransaction,
    connection: &Connection,
    force: bool,
) -> Result<(), Failure> {
    if force {
        service.abort_nested(one.id(), connection.peer.user);
        return Ok(());
    }
    refuse_while_others_hold(one, connection)
}

fn refuse_while_others_hold(one: &OpenTransaction, connection: &Connection) -> Result<(), Failure> {
    let others = one.holders.iter().filter(|(id, _)| **id != connection.id);
    let others: Vec<&u32> = others.map(|(_, process)| process).collect();
    match others.is_empty() {
        true => Ok(()),
        false if connection.peer.reach == Reach::Within(one.id()) => {
            Err(refusals::held_failure(one.id(), others).with_hint(
                "this command runs in it: let the command end, or try again outside of the \
                 transaction",
            ))
        }
        false => Err(refusals::held_failure(one.id(), others)),
    }
}
