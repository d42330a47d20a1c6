//! The library for C. `include/atomdir.h` documents its functions.
//!
//! Invariants
//! 1. No panic leaves a function: it becomes `ATOMDIR_EINTERNAL`.
//! 2. A handle is a box that the caller owns. All functions borrow it, except those that free it.
//! 3. A function that fails writes nothing to its results.
//!
//! Modules
//! - `store`, `transaction`: stores; transactions
//! - `names`, `files`: names, directories and attributes; contents of files
//! - `here`, `own_namespace`: a transaction around a thread's ordinary system calls; the user
//!   namespace that it needs in a process of an ordinary user
//! - `changes`, `listing`: lists of changes; lists of open and of ended transactions
//! - `past`, `texts`: the past, commits of a part, and sides in conflicts; the versions of a text
//!   in conflict
//! - `annotating`: commits that take themselves back, pins and labels
//! - `maintaining`: dropping history, and settings
//! - `error`, `handle`: error codes and messages; what C passes as pointers

mod annotating;
mod changes;
mod error;
mod files;
mod handle;
mod here;
mod listing;
mod maintaining;
mod names;
mod own_namespace;
mod past;
mod store;
mod texts;
mod transaction;
