//! The library for Python: the part of the package `atomdir` that is written in Rust.
//!
//! The classes here are thin. Paths, file objects, `with` and fsspec are written in Python, in
//! `python/atomdir`, on top of them. Every call that may wait or use the disk releases the
//! interpreter's lock, so that other threads can run.
//!
//! Modules
//! - `store`, `transaction`, `file`: the classes
//! - `convert`, `errors`: arguments and results; exceptions

mod convert;
mod errors;
mod file;
mod store;
mod transaction;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::store::{Store, find, init};
    #[pymodule_export]
    use super::transaction::Transaction;

    #[pymodule_init]
    fn initialize(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
