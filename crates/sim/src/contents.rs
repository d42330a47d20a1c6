//! Contents of a regular file: sectors and a length. A crash may keep one
//! without the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::Extent;

pub(crate) const SECTOR: u64 = 512;
/// Holes and data alternate at multiples of this.
const BLOCK: u64 = 4096;

pub(crate) type Sector = Arc<[u8; SECTOR as usize]>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    pub length: u64,
    /// The sectors that were written; the others are holes.
    pub sectors: BTreeMap<u64, Sector>,
    /// How many bytes from the start have blocks reserved.
    pub reserved: u64,
}

impl Contents {
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = self.length.saturating_sub(offset);
        let count = rest.min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let within = (at % SECTOR) as usize;
            let part = (SECTOR as usize - within).min(count - done);
            let target = &mut buffer[done..done + part];
            match self.sectors.get(&(at / SECTOR)) {
                Some(sector) => target.copy_from_slice(&sector[within..within + part]),
                None => target.fill(0),
            }
            done += part;
        }
        count
    }

    /// Returns the sectors as they will be once `data` is written; changes
    /// nothing yet.
    pub fn written(&self, data: &[u8], offset: u64) -> Vec<(u64, Option<Sector>)> {
        let mut sectors = Vec::new();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % SECTOR) as usize;
            let part = (SECTOR as usize - within).min(data.len() - done);
            let mut bytes = self.sector(at / SECTOR);
            bytes[within..within + part].copy_from_slice(&data[done..done + part]);
            sectors.push((at / SECTOR, Some(Arc::new(bytes))));
            done += part;
        }
        sectors
    }

    fn sector(&self, number: u64) -> [u8; SECTOR as usize] {
        let known = self.sectors.get(&number);
        known.map_or([0; SECTOR as usize], |sector| **sector)
    }

    /// Returns the sectors as they will be once a range is a hole.
    pub fn punched(&self, offset: u64, end: u64) -> Vec<(u64, Option<Sector>)> {
        let touched = self.sectors.range(offset / SECTOR..end.div_ceil(SECTOR));
        let punch = |(number, sector): (&u64, &Sector)| {
            let start = number * SECTOR;
            let from = offset.saturating_sub(start).min(SECTOR) as usize;
            let to = (end - start).min(SECTOR) as usize;
            if from == 0 && to == SECTOR as usize {
                return (*number, None);
            }
            let mut bytes = **sector;
            bytes[from..to].fill(0);
            (*number, Some(Arc::new(bytes)))
        };
        touched.map(punch).collect()
    }

    pub fn put(&mut self, number: u64, sector: Option<Sector>) {
        match sector {
            Some(sector) => _ = self.sectors.insert(number, sector),
            None => _ = self.sectors.remove(&number),
        }
    }

    pub fn set_length(&mut self, length: u64) {
        self.length = length;
        self.reserved = self.reserved.min(length);
        self.trim();
    }

    /// Drops what is beyond the length, so that it does not reappear when the file grows.
    pub fn trim(&mut self) {
        let end = self.length.div_ceil(SECTOR);
        let last = self.sectors.last_key_value();
        if last.is_some_and(|(last, _)| *last >= end) {
            self.sectors.split_off(&end);
        }
        let within = (self.length % SECTOR) as usize;
        if within > 0
            && let Some(last) = self.sectors.get_mut(&(self.length / SECTOR))
        {
            Arc::make_mut(last)[within..].fill(0);
        }
    }

    pub fn next_data(&self, offset: u64) -> Option<Extent> {
        let block = |sector: u64| sector * SECTOR / BLOCK * BLOCK;
        let from = offset / BLOCK * BLOCK / SECTOR;
        let mut later = self.sectors.range(from..).map(|(number, _)| *number);
        let first = later.next()?;
        let start = block(first).max(offset);
        let mut end = block(first) + BLOCK;
        for sector in later {
            if block(sector) > end {
                break;
            }
            end = block(sector) + BLOCK;
        }
        let end = end.min(self.length);
        (start < end).then(|| Extent {
            offset: start,
            length: end - start,
        })
    }

    /// The allocated blocks, in sectors.
    pub fn blocks(&self) -> u64 {
        (self.sectors.len() as u64).max(self.reserved / SECTOR)
    }
}
