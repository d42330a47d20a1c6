//! A whole tree as a value: capture two trees, or one tree twice, and compare them.
//! Links are never followed.

mod capture;
mod compare;
mod contents;
mod entry;

pub use capture::{CaptureOptions, capture};
pub use compare::{CompareOptions, Difference, Times, assert_equal, compare};
pub use contents::{Contents, PAGE_SIZE_BYTES};
pub use entry::{Entry, Kind, Moment, Tree};
