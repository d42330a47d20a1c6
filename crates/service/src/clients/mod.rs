//! Connections and the frames sent over them: who is connected, and waiting while a peer stays
//! connected.

pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod latch;
pub(crate) mod limits;
pub(crate) mod replies;
pub(crate) mod socket;
pub(crate) mod turn;
pub(crate) mod waiters;
