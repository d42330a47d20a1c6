//! The request that lists conflicts, and the sides that a commit takes in them.

use crate::clients::connection::Connection;
use crate::clients::replies::{Unanswered, conflict_length, send_parts};
use crate::requests::commit;
use crate::rights::discretion;
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::leases;
use crate::views::native;
use atomdir_protocol::{Answer, Numbers, Reply, Sides, TransactionId};

pub(crate) fn list(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    again: bool,
) -> Result<Answer, Unanswered> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    let conflicts = if again {
        native::require_exact(&one)?;
        leases::gather(service, &connection.stream, &one.transaction)?;
        let conflicts = service.store.list_conflicts(&one.transaction);
        commit::or_failure(service, connection, &one, conflicts)?
    } else {
        one.transaction.listed_conflicts()
    };
    let conflicts = conflicts
        .into_iter()
        .map(|conflict| discretion::conflict(&service.access, peer, conflict, &[]));
    send_parts(
        &connection.stream,
        conflicts,
        conflict_length,
        Reply::Conflicts,
    )?;
    Ok(Answer::Nothing)
}

/// The numbers that were given of the conflicts that were listed last.
pub(crate) fn in_list(one: &OpenTransaction, sides: &Sides) -> atomdir_engine::Sides {
    let count = one.transaction.listed_conflicts().len() as u64;
    let Sides { mine, theirs } = sides;
    atomdir_engine::Sides {
        mine: numbers(mine, theirs, count),
        theirs: numbers(theirs, mine, count),
    }
}

/// The numbers that are meant; `named` are those of the other side.
fn numbers(these: &Numbers, named: &Numbers, count: u64) -> Vec<u64> {
    match (these, named) {
        (Numbers::These(these), _) => these.clone(),
        (Numbers::Others, Numbers::These(named)) => {
            (1..=count).filter(|one| !named.contains(one)).collect()
        }
        // Both sides cannot have all: then the engine refuses each.
        (Numbers::Others, Numbers::Others) => (1..=count).collect(),
    }
}
