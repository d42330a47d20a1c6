//! A file's contents in a form that is small enough to keep for every file of a tree,
//! and exact enough to show which page differs.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The granularity of the guarantee, and therefore of the comparison.
pub const PAGE_SIZE_BYTES: u64 = 4096;

const READ_SIZE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub length: u64,
    /// A hash of each page that is not all zeros: two files of equal length
    /// read the same if and only if these are equal, holes or not.
    pub pages: BTreeMap<u64, u64>,
    /// Pages without storage, as ranges `start..end` of page numbers. Empty if the file
    /// system does not distinguish holes from data.
    pub holes: Vec<(u64, u64)>,
}

impl Contents {
    /// Reads the whole open file, except holes, so that a sparse file costs only as much as
    /// its data.
    pub fn read(file: BorrowedFd<'_>, length: u64) -> io::Result<Self> {
        let mut contents = Self {
            length,
            pages: BTreeMap::new(),
            holes: Vec::new(),
        };
        let mut offset = 0;
        while offset < length {
            let data = seek(file, SeekFrom::Data(offset))?
                .unwrap_or(length)
                .min(length);
            contents.add_hole(offset, data);
            if data >= length {
                break;
            }
            let hole = seek(file, SeekFrom::Hole(data))?
                .unwrap_or(length)
                .min(length);
            contents.add_data(file, data, hole)?;
            offset = hole;
        }
        Ok(contents)
    }

    /// The first page that differs, and how many do.
    pub fn differing_pages(&self, other: &Self) -> Option<(u64, usize)> {
        let mut differing: Vec<u64> = self
            .pages
            .iter()
            .filter(|(page, hash)| other.pages.get(page) != Some(hash))
            .map(|(page, _)| *page)
            .collect();
        differing.extend(
            other
                .pages
                .keys()
                .filter(|page| !self.pages.contains_key(page)),
        );
        differing
            .iter()
            .min()
            .map(|first| (*first, differing.len()))
    }

    /// Counts only pages that lie entirely in the hole. The file's last page ends where the
    /// file ends.
    fn add_hole(&mut self, start: u64, end: u64) {
        let first = start.div_ceil(PAGE_SIZE_BYTES);
        let last = if end == self.length {
            end.div_ceil(PAGE_SIZE_BYTES)
        } else {
            end / PAGE_SIZE_BYTES
        };
        if first >= last {
            return;
        }
        match self.holes.last_mut() {
            Some(before) if before.1 == first => before.1 = last,
            _ => self.holes.push((first, last)),
        }
    }

    fn add_data(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; READ_SIZE_BYTES];
        let mut offset = start - start % PAGE_SIZE_BYTES;
        let end = end.next_multiple_of(PAGE_SIZE_BYTES).min(self.length);
        while offset < end {
            let wanted =
                usize::try_from(end - offset).map_or(buffer.len(), |n| n.min(buffer.len()));
            let got = read_full(file, &mut buffer[..wanted], offset)?;
            if got < wanted {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!(
                        "the file ends at {} although its size is {}",
                        offset + got as u64,
                        self.length
                    ),
                ));
            }
            for (index, page) in buffer[..got].chunks(PAGE_SIZE_BYTES as usize).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    self.pages
                        .insert(offset / PAGE_SIZE_BYTES + index as u64, hash(page));
                }
            }
            offset += got as u64;
        }
        Ok(())
    }
}

/// `None`: there is no data, or no hole, from there on. A file system that cannot
/// distinguish them reports everything as data; `EINVAL` and the like mean the same here.
fn seek(file: BorrowedFd<'_>, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(match to {
            SeekFrom::Data(offset) => Some(offset),
            _ => None,
        }),
        Err(error) => Err(error.into()),
    }
}

fn read_full(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

fn hash(page: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    page.hash(&mut hasher);
    hasher.finish()
}
