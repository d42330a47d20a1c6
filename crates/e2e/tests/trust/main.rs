//! Whose store it is: planted control directories, services that lie, and what a
//! service takes over from its starter.

mod fake;
mod planted;
mod shared;
mod surroundings;
