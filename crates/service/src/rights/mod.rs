//! Checks the rights of peers, which paths a message may name, and what of the engine's reports a
//! peer may see.

pub(crate) mod access;
pub(crate) mod convert;
pub(crate) mod discretion;
pub(crate) mod permissions;
