//! Which stores a client trusts: planted control directories, services that lie, and what
//! a service inherits from its starter.

mod fake;
mod more_rights;
mod planted;
mod shared;
mod surroundings;
