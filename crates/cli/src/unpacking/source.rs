//! The bytes of a tar archive, with what the library that reads it does not look at.

use super::invalid;
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Names and attributes of one entry together are kept in memory.
const HEADERS_MAX: u64 = 4 << 20;
/// An archive ends with two blocks of zeros, and at least one must be there.
const BLOCK: u64 = 512;

/// Reads, and counts for its [`Watch`].
pub struct Source<R> {
    inner: R,
    watch: Rc<Counts>,
}

/// Watches a [`Source`] that somebody else reads.
pub struct Watch(Rc<Counts>);

struct Counts {
    /// How many bytes may still be read.
    left: Cell<u64>,
    /// How many zeros were read last.
    zeros: Cell<u64>,
}

impl<R: Read> Source<R> {
    pub fn new(inner: R) -> (Source<R>, Watch) {
        let watch = Rc::new(Counts {
            left: Cell::new(HEADERS_MAX),
            zeros: Cell::new(0),
        });
        let source = Source {
            inner,
            watch: watch.clone(),
        };
        (source, Watch(watch))
    }
}

impl Watch {
    /// What is read next are the headers of one entry, whose length is limited.
    pub fn expect_headers(&self) {
        self.0.left.set(HEADERS_MAX);
    }

    /// What is read next are contents.
    pub fn expect_contents(&self) {
        self.0.left.set(u64::MAX);
    }

    /// Whether the archive is complete, as far as it was read.
    pub fn has_end(&self) -> bool {
        self.0.zeros.get() >= BLOCK
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Counts { left, zeros } = &*self.watch;
        if left.get() == 0 && !buffer.is_empty() {
            return Err(invalid("a name or an attribute is longer than 4 MiB"));
        }
        let length = buffer
            .len()
            .min(left.get().try_into().unwrap_or(usize::MAX));
        let count = self.inner.read(&mut buffer[..length])?;
        if left.get() != u64::MAX {
            left.set(left.get() - count as u64);
        }
        let read = &buffer[..count];
        match read.iter().rev().position(|byte| *byte != 0) {
            Some(since) => zeros.set(since as u64),
            None => zeros.set(zeros.get() + count as u64),
        }
        Ok(count)
    }
}
