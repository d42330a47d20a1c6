//! Gives a transaction a newer snapshot.
//!
//! The kernel has cached the old one without limit: names, attributes, pages, and names that were
//! missing. So it forgets the view as a whole, and then meets the same path anew. Programs that
//! are in the view get errors, so the request is refused while others hold the transaction.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::commit;
use crate::requests::sealing;
use crate::requests::sharing;
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::leases::{self, Arrived, Attempt};
use crate::transactions::survival;
use atomdir_engine::{CommitError, Conflict, ConflictKind, RefreshError, Refreshed};
use atomdir_protocol::{Answer, Failure, FailureKind, Others, RefreshRequest};

pub(crate) fn refresh(
    service: &Service,
    connection: &Connection,
    asked: &RefreshRequest,
) -> Result<Answer, Unanswered> {
    let &RefreshRequest {
        transaction: id,
        wait,
        only_to_survive,
    } = asked;
    let others = if wait { Others::Wait } else { Others::Refuse };
    if only_to_survive {
        let one = service
            .transactions
            .control(id, &connection.peer, connection.id)?;
        if !one.detached {
            return Ok(Answer::Nothing);
        }
    }
    sharing::when_free(service, connection, id, others, || {
        let claimed = sharing::claim(service, connection, id, others);
        let one = claimed.map_err(without_force)?;
        let is_in_vain = || {
            let is_alone = service.store.has_own_commits_only(&one.transaction);
            one.transaction.survives() || !is_alone
        };
        if only_to_survive && is_in_vain() {
            return Ok(Answer::Nothing);
        }
        let refreshed = try_refresh(service, connection, &one)?;
        service.views.renew(&one.transaction, &refreshed.known);
        service.maintenance.wake();
        if one.detached && !one.transaction.survives() {
            // The history may keep what its new snapshot needs.
            survival::survive(service, &one);
        }
        Ok(Answer::Refreshed {
            from: refreshed.from,
            to: refreshed.to,
        })
    })
}

pub(super) fn try_refresh(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
) -> Result<Refreshed, Unanswered> {
    let id = one.id();
    let outlasted = leases::outlast(&connection.stream, || {
        match service.views.write_back(&one.transaction)? {
            Arrived::All => {}
            Arrived::PerhapsNotAll => return Err(commit::incomplete_failure(id).into()),
            Arrived::NotAllYet => return Ok(Attempt::Leased(None)),
        }
        Ok(match service.store.refresh(&one.transaction) {
            Err(RefreshError::Commit(CommitError::Leased { step, path })) => {
                Attempt::Leased(Some((step, path)))
            }
            refreshed => Attempt::Done(refreshed),
        })
    });
    match outlasted? {
        Attempt::Leased(file) => Err(leases::failure(id, file).into()),
        Attempt::Done(Ok(refreshed)) => Ok(refreshed),
        Attempt::Done(Err(error)) => Err(failure(service, connection, one, error)?.into()),
    }
}

fn failure(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    error: RefreshError,
) -> Result<Failure, Unanswered> {
    let id = one.id();
    Ok(match error {
        RefreshError::Commit(CommitError::Conflict(conflicts)) => {
            let holder = conflicts.iter().find_map(commit::held_by);
            let is_unmerged = |one: &Conflict| one.what == ConflictKind::Unmerged;
            let are_unmerged = conflicts.iter().all(is_unmerged);
            commit::send_conflicts(service, connection, conflicts)?;
            let message = format!(
                "transaction {id} has changed what others have changed as well since its snapshot; \
                 nothing was refreshed"
            );
            let choice = || match are_unmerged {
                _ if commit::is_serializable(one) => commit::no_side(id),
                true => format!(
                    "both have changed different parts, which `atomdir commit {id}` merges; to go on \
                     in the transaction, drop its changes there with `atomdir abort {id} -- PATH...` \
                     and try again"
                ),
                false => format!(
                    "`atomdir conflicts {id} --patch` shows both sides; after `atomdir abort {id} -- \
                     PATH...` of those changes, or after `atomdir commit {id} -- PATH...` of the \
                     others, try again"
                ),
            };
            let hint = holder.map(|holder| commit::in_the_way(id, holder));
            Failure::new(FailureKind::Conflict, message).with_hint(hint.unwrap_or_else(choice))
        }
        RefreshError::Commit(error) => commit::failure(service, connection, one, error)?,
        RefreshError::Frozen => sealing::frozen(id),
        RefreshError::Native => crate::views::native::in_use(id, ""),
        error => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint("refresh the outermost transaction once nothing is nested in it"),
    })
}

/// A refresh does not end the views of others.
fn without_force(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::InUse => failure.with_hint("wait for the others with --wait"),
        _ => failure,
    }
}
