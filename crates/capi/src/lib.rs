//! The library for C. `include/atomdir.h` documents its functions.
//!
//! Invariants
//! 1. No panic leaves a function: it becomes `ATOMDIR_EINTERNAL`.
//! 2. A handle is a box that the caller owns. All functions borrow it, except those that free it.
//! 3. A function that fails writes nothing to its results.

mod changes;
mod error;
mod files;
mod handle;
mod here;
mod listing;
mod maintaining;
mod names;
mod past;
mod store;
mod texts;
mod transaction;
