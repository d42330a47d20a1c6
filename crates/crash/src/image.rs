//! The bytes of a disk, cheap to copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PAGE_SIZE: usize = 4096;

type Page = [u8; PAGE_SIZE];

/// Copies share their pages until one is written to. A page of zeros takes no memory.
#[derive(Debug, Clone)]
pub struct Image {
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// All zeros.
    pub fn new(length: u64) -> Self {
        let count = usize::try_from(length).map(|length| length.div_ceil(PAGE_SIZE));
        Self {
            pages: vec![None; count.expect("a disk of the tests fits into memory")],
        }
    }

    pub fn length(&self) -> u64 {
        (self.pages.len() * PAGE_SIZE) as u64
    }

    /// Fills `buffer` and returns how many bytes it read: fewer only at the end of the disk.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.length_at(offset, buffer.len());
        for (page, within, part) in parts(offset, length) {
            let into = &mut buffer[part];
            match &self.pages[page] {
                Some(bytes) => into.copy_from_slice(&bytes[within..within + into.len()]),
                None => into.fill(0),
            }
        }
        length
    }

    /// Writes as much of `data` as there is room for, and returns how many bytes that is.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> usize {
        let length = self.length_at(offset, data.len());
        for (page, within, part) in parts(offset, length) {
            let from = &data[part];
            let slot = &mut self.pages[page];
            if from.len() == PAGE_SIZE && from.iter().all(|byte| *byte == 0) {
                *slot = None;
                continue;
            }
            let bytes = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE_SIZE])));
            bytes[within..within + from.len()].copy_from_slice(from);
        }
        length
    }

    /// Writes the image into an empty file, with holes where pages are zero.
    pub fn save(&self, file: &File) -> io::Result<()> {
        file.set_len(self.length())?;
        for (number, page) in self.pages.iter().enumerate() {
            if let Some(bytes) = page {
                file.write_all_at(bytes.as_slice(), (number * PAGE_SIZE) as u64)?;
            }
        }
        Ok(())
    }

    fn length_at(&self, offset: u64, wanted: usize) -> usize {
        let behind = self.length().saturating_sub(offset);
        wanted.min(usize::try_from(behind).unwrap_or(usize::MAX))
    }
}

/// The pages that a span of bytes touches. For each: its number, the offset in it, and the range of
/// the span's bytes.
fn parts(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let start = offset as usize;
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == length {
            return None;
        }
        let within = (start + at) % PAGE_SIZE;
        let count = (PAGE_SIZE - within).min(length - at);
        let part = ((start + at) / PAGE_SIZE, within, at..at + count);
        at += count;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent_and_spans_cross_pages() {
        let mut image = Image::new(3 * 4096);
        assert_eq!(image.write(4000, &[7; 5000]), 5000);
        let before = image.clone();
        assert_eq!(image.write(8192, &[9; 8192]), 4096, "the disk ends there");
        let mut bytes = [1; 12288];
        assert_eq!(before.read(0, &mut bytes), 12288);
        assert!(bytes[..4000].iter().all(|byte| *byte == 0));
        assert!(bytes[4000..9000].iter().all(|byte| *byte == 7));
        assert!(bytes[9000..].iter().all(|byte| *byte == 0));
        assert_eq!(image.read(8190, &mut bytes), 4098);
        assert_eq!(bytes[..3], [7, 7, 9]);
        image.write(4096, &[0; 4096]);
        assert_eq!(image.read(4095, &mut bytes[..3]), 3);
        assert_eq!(bytes[..3], [7, 0, 0]);
    }
}
