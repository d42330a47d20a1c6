//! What may be asked of an open store besides a commit.

mod nesting;
