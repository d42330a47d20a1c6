//! The bytes of a store's control files: pure encoding and decoding, no I/O.
//! docs/format.md draws every structure.
//!
//! A [`scan::Scanner`] reads a file of records, and [`frame::encode`] makes the
//! bytes to append to it. [`record`], [`past`], [`summary`], [`annotations`], [`privileges`], [`view`] and
//! [`notice`] hold what can be in a frame, [`header`] the store's fixed header.
//!
//! Modules
//! - `frame`, `scan`: a record in a file; reading a file of records, and how it ends
//! - `record`, `past`, `summary`, `annotations`, `view`, `notice`, `privileges`: what can be in a
//!   frame: commits; what they replaced; what is kept of them; what users say of them; view logs;
//!   notices; a recovery's note
//! - `header`, `applied`, `log_place`: the store's header; the applied mark; a log outside the control
//!   directory
//! - `codec`, `primitives`, `error`: encoding and decoding all of these; bytes that are no record

pub mod annotations;
pub mod applied;
mod codec;
mod error;
pub mod frame;
pub mod header;
pub mod log_place;
pub mod notice;
pub mod past;
mod primitives;
pub mod privileges;
pub mod record;
pub mod scan;
pub mod summary;
pub mod view;

pub use error::{DecodeError, Problem};
