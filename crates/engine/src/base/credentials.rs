//! Who asks, and for which right to an object.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: u32,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Read = 4,
    Write = 2,
    Search = 1,
}
