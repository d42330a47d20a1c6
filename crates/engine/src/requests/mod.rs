//! What may be asked of an open store, besides a commit: to begin a transaction (`begin`), also
//! a nested one, and to set savepoints (`nesting`); to lock parts of the base (`lock`); to list
//! the commits of the past (`history`).
//!
//! Invariants
//! 1. A transaction begins only when every commit that was acknowledged is in the base: its
//!    snapshot is the base alone.
//! 2. A lock is granted under the commit lock, when every commit before it is in the base, and
//!    only if nothing that it covers has changed since its holder's snapshot.

mod begin;
mod history;
mod lock;
mod nesting;
