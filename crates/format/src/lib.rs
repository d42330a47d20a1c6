//! The bytes of a store's control files: pure encoding and decoding, no I/O.
//! docs/format.md draws every structure.
//!
//! A [`scan::Scanner`] reads a file of records, and [`frame::encode`] makes the
//! bytes to append to it. [`record`], [`past`], [`summary`], [`privileges`], [`view`] and [`notice`]
//! hold what can be in a frame, [`header`] the store's fixed header.

pub mod applied;
mod codec;
mod error;
pub mod frame;
pub mod header;
pub mod notice;
pub mod past;
mod primitives;
pub mod privileges;
pub mod record;
pub mod scan;
pub mod summary;
pub mod view;

pub use error::{DecodeError, Problem};
