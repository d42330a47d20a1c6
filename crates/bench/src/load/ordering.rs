//! Programs that sync to put writes in order.

use std::fs;
use std::path::Path;

use super::{pages, step};
use crate::bench::sync;
use crate::error::{Describe, Result};

/// Creates and removes a file, and syncs, again and again.
pub fn cancel(count: u64) -> Result<()> {
    let file = Path::new("temporary");
    step("-");
    for _ in 0..count {
        fs::write(file, b"x").describe("write", file)?;
        fs::remove_file(file).describe("remove", file)?;
        sync(Path::new("."))?;
    }
    step("cancel");
    Ok(())
}

/// Creates three files, makes them durable, and then changes the first `bytes` bytes of `data`.
pub fn order(bytes: u64) -> Result<()> {
    for name in ["one", "two", "three"] {
        let path = Path::new(name);
        pages::fill(path, bytes)?;
        pages::flush(path)?;
        pages::flush(Path::new("."))?;
    }
    let path = Path::new("data");
    pages::write(&pages::open(path)?, path, 0..bytes, b'n')?;
    pages::flush(path)
}
