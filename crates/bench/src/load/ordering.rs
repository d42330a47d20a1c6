//! Syncs that put writes in order.

use std::fs;
use std::path::Path;

use super::{pages, step};
use crate::bench::sync;
use crate::error::{Describe, Result};

/// A file that comes and goes, with a sync each time.
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

/// Three files that must be there before so much of `data` is changed.
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
