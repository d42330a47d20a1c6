//! What the service says of itself.

use crate::permissions::Peer;
use crate::service::Service;
use crate::{discretion, limits};
use atomdir_protocol::{Sequence, ServiceStatus};
use std::os::unix::ffi::OsStrExt;

pub(crate) fn service_status(service: &Service, peer: &Peer) -> ServiceStatus {
    let status = service.store.status();
    let idle_time = service.idle_time.get();
    ServiceStatus {
        process: rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
        user: rustix::process::geteuid().as_raw(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: service.started,
        age_seconds: service.started_at.elapsed().as_secs(),
        store: service.path.as_os_str().as_bytes().to_vec(),
        views: service.views.place(),
        views_over_io_uring: service.views.come_over_io_uring(),
        view_requests: service.views.requests(),
        connections: service.connections.count() as u64,
        open_transactions: service.transactions.count() as u64,
        idle_ms: idle_time.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX)),
        limits: limits::limits(),
        sequence: Sequence(status.sequence.0),
        log_bytes: status.log_bytes,
        poisoned: status
            .poisoned
            .map(|reason| discretion::poison(&reason, peer)),
        stalled: status
            .stalled
            .map(|stalled| discretion::stalled(&stalled, peer)),
        recovery: service.recovery,
    }
}
