//! Checks the rights of peers, and whether their sandboxes wall them off from the store; which paths
//! a message may name, and what of the engine's reports a peer may see.

pub(crate) mod access;
pub(crate) mod convert;
pub(crate) mod discretion;
pub(crate) mod permissions;
pub(crate) mod walls;
