//! The requests that an open store serves besides commits: beginning a transaction (`begin`),
//! nested transactions and savepoints (`nesting`), locks on parts of the base (`lock`), for which
//! calls through a guard wait (`guarded`), outliving the service (`survive`), and listing past commits (`history`).
//!
//! Invariants
//! 1. A transaction's snapshot shows every commit that returned before its begin. They are in the
//!    base by then, or get there before the transaction reads what they change
//!    (`base::on_the_way`).
//! 2. A lock is granted under the commit lock, when every commit before it is in the base, and
//!    only if nothing that it covers has changed since its holder's snapshot.

mod begin;
pub(crate) mod guarded;
pub(crate) mod history;
mod joint;
mod lock;
mod nesting;
pub(crate) mod survive;
