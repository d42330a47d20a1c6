//! What may be asked of an open store besides a commit.

mod begin;
mod history;
mod lock;
mod nesting;
