//! Checks the rights of peers, and which paths a message may name.

pub(crate) mod access;
pub(crate) mod discretion;
pub(crate) mod permissions;
pub(crate) mod side_access;
