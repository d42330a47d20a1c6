//! Requests about the service itself: its state, its restrictions, its mounts and its end.

use super::status;
use crate::clients::connection::Connection;
use crate::clients::replies::{Outcome, Unanswered};
use crate::service::Service;
use crate::transactions::survival;
use crate::views::guard;
use atomdir_protocol::{Answer, Failure, FailureKind, Reply, Request, WhileOpen};
use std::time::Duration;

pub(crate) fn handle(
    service: &Service,
    connection: &Connection,
    request: Request,
) -> Result<Outcome, Unanswered> {
    let peer = &connection.peer;
    let answer = match request {
        Request::Surroundings => Answer::Surroundings(service.surroundings.clone()),
        Request::LendMount { transaction } => {
            let one = service.transactions.find(transaction, peer)?;
            let mount = service.views.lend(&one.transaction)?;
            return Ok(Outcome::LastWith(Reply::Done(Answer::Nothing), mount));
        }
        Request::SetIdleTime { idle_ms } => {
            peer.require_administer("say how long the service stays")?;
            service.idle_time.set(idle_ms.map(Duration::from_millis));
            Answer::Nothing
        }
        Request::MountGuard { syncs } => {
            guard::mount(service, peer, syncs)?;
            Answer::Nothing
        }
        Request::UnmountGuard => {
            guard::unmount(service, peer)?;
            Answer::Nothing
        }
        Request::Stop { open } => {
            peer.require_administer("stop the service")?;
            survival::check_stop(service, open)?;
            if open == WhileOpen::RefuseIfUsed {
                refuse_if_used(service)?;
            }
            service.request_stop(connection.stream.clone(), peer.user, open);
            return Ok(Outcome::Stopping);
        }
        _ => status::of_service(service, peer),
    };
    Ok(Outcome::Last(Reply::Done(answer)))
}

/// For a client that would start another service in place of this one.
fn refuse_if_used(service: &Service) -> Result<(), Failure> {
    let why = match service.connections.count() {
        _ if service.is_supervised => "a supervisor runs the service, and would have to restart it",
        _ if service.guard.is_mounted() => "the service has mounted a guard over the store",
        0 | 1 => return Ok(()),
        _ => "another program is connected to the service",
    };
    Err(Failure::new(FailureKind::InUse, why))
}
