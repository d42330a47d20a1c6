//! The end-to-end tests live in `tests/`.
//!
//! Modules
//! - `bin`: helper programs that the tests run inside views
