//! Whether a peer may make a request at all: what it runs in, who may use the store, and what its sandbox
//! lets it reach.

use crate::clients::connection::Connection;
use crate::rights::permissions::Reach;
use crate::service::Service;
use atomdir_protocol::{Failure, FailureKind, Request};

pub(super) fn check(
    service: &Service,
    connection: &Connection,
    request: &Request,
) -> Result<(), Failure> {
    require_reach(connection.peer.reach, request)?;
    service.access.check(&connection.peer, request)?;
    connection.walls.check(request)
}

fn require_reach(reach: Reach, request: &Request) -> Result<(), Failure> {
    if reach == Reach::Nothing && !matches!(request, Request::Enter { .. }) {
        let message =
            "the first request on this socket must name the transaction that the program runs in";
        return Err(Failure::new(FailureKind::NotPermitted, message));
    }
    Ok(())
}
