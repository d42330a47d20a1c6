//! Files that are open in a transaction. `_file.py` implements positions and buffers.

use crate::errors::{Outcome, Raised};
use atomdir::SharedFile;
use atomdir::hosting::sync;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Up to this size, a read allocates its buffer without asking for the file's length.
const CERTAIN_SIZE_MAX: u64 = 1 << 20;

#[pyclass(frozen)]
pub(crate) struct File {
    /// `None` once it is closed. A call that is still running keeps the file open until it returns.
    file: Mutex<Option<Arc<SharedFile>>>,
    path: PathBuf,
}

impl File {
    pub(crate) fn new(file: SharedFile, path: PathBuf) -> File {
        File {
            file: Mutex::new(Some(Arc::new(file))),
            path,
        }
    }

    fn run<T: Send>(
        &self,
        python: Python<'_>,
        act: impl FnOnce(&SharedFile) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        let outcome: Outcome<T> = python.detach(|| {
            let file = sync::lock(&self.file).clone().ok_or(Raised::Ended)?;
            act(&file).map_err(|error| Raised::OpenFile(error, self.path.clone()))
        });
        outcome.map_err(|error| error.into_exception(python))
    }
}

#[pymethods]
impl File {
    fn read<'py>(
        &self,
        python: Python<'py>,
        size: u64,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let contents = self.run(python, |file| {
            let size = match size {
                // Do not ask for the length, which would enter the read set.
                0..=CERTAIN_SIZE_MAX => size,
                // The caller may ask for much more than the file has.
                _ => size.min(file.length()?.saturating_sub(offset)),
            };
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let mut contents = vec![0; size];
            let count = file.read_at(&mut contents, offset)?;
            contents.truncate(count);
            Ok(contents)
        });
        Ok(PyBytes::new(python, &contents?))
    }

    fn write(&self, python: Python<'_>, data: &[u8], offset: u64) -> PyResult<()> {
        self.run(python, |file| file.write_all_at(data, offset))
    }

    fn append(&self, python: Python<'_>, data: &[u8]) -> PyResult<u64> {
        self.run(python, |file| file.append(data))
    }

    fn truncate(&self, python: Python<'_>, length: u64) -> PyResult<()> {
        self.run(python, |file| file.set_len(length))
    }

    fn length(&self, python: Python<'_>) -> PyResult<u64> {
        self.run(python, |file| file.length())
    }

    fn close(&self, python: Python<'_>) {
        python.detach(|| {
            let file = sync::lock(&self.file).take();
            drop(file);
        });
    }
}
