//! The library for C. `include/atomdir.h` is its documentation; here is what stands behind each
//! function.
//!
//! Invariants
//! 1. No panic leaves a function: it becomes `ATOMDIR_EINTERNAL`.
//! 2. A handle is a box that the caller owns. Functions borrow it, but for those that free it.
//! 3. A function that fails changes none of its results.

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
