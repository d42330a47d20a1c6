//! A user with their groups, and the permissions on an object that the engine
//! checks.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: u32,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read = 4,
    Write = 2,
    /// To use the entries in a directory.
    Search = 1,
}
