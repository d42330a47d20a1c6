//! The writes and flushes that reached the disk, in order, and the disks that a
//! power cut may leave.

use std::ops::Range;
use std::sync::Arc;

use atomdir_testing::Random;

use crate::image::Image;

const PAGE_LENGTH: u64 = 4096;

/// The units that a disk writes whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtomicUnits {
    /// In bytes; 4096 is a multiple of it.
    pub sector_length: u64,
    /// The primary superblock: if it were torn, its checksum would fail.
    pub superblock: Range<u64>,
}

#[derive(Debug, Clone)]
pub enum Event {
    Write { offset: u64, data: Arc<[u8]> },
    Flush,
    Commit(CommitEvent),
}

/// What the test knows of its commits, numbered from one in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitEvent {
    /// From here on the commit may have happened.
    Started(usize),
    /// From here on this commit and all before it survive.
    Durable(usize),
}

/// The disk when the recording began, and the events since.
#[derive(Debug, Clone)]
pub struct Recording {
    initial: Image,
    events: Vec<Event>,
}

/// The events from one flush to the next. Everything before them is durable.
pub type Span = Range<usize>;

impl Recording {
    pub fn new(initial: Image, events: Vec<Event>) -> Self {
        Self { initial, events }
    }

    /// Each span ends with a flush, except the last, which ends with the recording.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut start = 0;
        for (number, event) in self.events.iter().enumerate() {
            if matches!(event, Event::Flush) {
                spans.push(start..number + 1);
                start = number + 1;
            }
        }
        spans.push(start..self.events.len());
        spans
    }

    /// The newest commit that a crash after the first `end` events must keep, and the newest that
    /// it may keep.
    pub fn commits_at(&self, end: usize) -> (usize, usize) {
        let (mut durable, mut started) = (0, 0);
        for event in &self.events[..end] {
            match event {
                Event::Commit(CommitEvent::Started(number)) => started = *number,
                Event::Commit(CommitEvent::Durable(number)) => durable = *number,
                Event::Write { .. } | Event::Flush => {}
            }
        }
        (durable, started)
    }

    /// The disk with the first `end` events and nothing else.
    pub fn image_at(&self, end: usize) -> Image {
        let mut image = self.initial.clone();
        for event in &self.events[..end] {
            if let Event::Write { offset, data } = event {
                image.write(*offset, data);
            }
        }
        image
    }

    /// The disk after a power cut during the span: everything that was written before the span, and
    /// any part of what was written in it. A write may be torn, but not within a unit. Also returns
    /// the number of events before the cut.
    pub fn crash_image(
        &self,
        span: &Span,
        units: &AtomicUnits,
        random: &mut Random,
    ) -> (Image, usize) {
        let mut image = self.image_at(span.start);
        // Cuts late in the span are more likely, since then there is most to lose.
        let bound = span.len() + 1;
        let end = span.start + random.below(bound).max(random.below(bound));
        let (kept_of_four, torn_of_sixteen) = (random.below(5), random.below(5));
        for event in &self.events[span.start..end] {
            let Event::Write { offset, data } = event else {
                continue;
            };
            if random.below(16) < torn_of_sixteen {
                let unit = if random.chance(2) {
                    units.sector_length
                } else {
                    PAGE_LENGTH
                };
                write_torn(&mut image, (*offset, data), unit, &units.superblock, random);
            } else if random.below(4) < kept_of_four {
                image.write(*offset, data);
            }
        }
        (image, end)
    }
}

/// Writes a random subset of the aligned units of the data. `whole` is one unit.
fn write_torn(
    image: &mut Image,
    (offset, data): (u64, &[u8]),
    unit: u64,
    whole: &Range<u64>,
    random: &mut Random,
) {
    let mut rest = data;
    let mut at = offset;
    while !rest.is_empty() {
        let end = if whole.contains(&at) {
            whole.end
        } else {
            at - at % unit + unit
        };
        let (part, behind) = rest.split_at(rest.len().min((end - at) as usize));
        if random.chance(2) {
            image.write(at, part);
        }
        at += part.len() as u64;
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: u8 = 7;

    fn units(superblock: Range<u64>) -> AtomicUnits {
        AtomicUnits {
            sector_length: 512,
            superblock,
        }
    }

    fn write(sector: u64, count: usize) -> Event {
        Event::Write {
            offset: sector * 512,
            data: vec![NEW; count * 512].into(),
        }
    }

    fn sectors(image: &Image) -> Vec<bool> {
        let mut bytes = vec![0; image.length() as usize];
        image.read(0, &mut bytes);
        let whole = |sector: &[u8]| {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "a sector is never torn"
            );
            sector[0] == NEW
        };
        bytes.chunks(512).map(whole).collect()
    }

    #[test]
    fn a_superblock_is_never_torn() {
        let events = vec![write(0, 16)];
        let recording = Recording::new(Image::new(16 * 512), events);
        let mut random = Random::from_seed(1);
        for _ in 0..1000 {
            let (image, _) = recording.crash_image(&(0..1), &units(1024..2048), &mut random);
            let found = sectors(&image);
            assert_eq!(found[2], found[3]);
        }
    }

    #[test]
    fn a_power_cut_keeps_what_was_flushed_and_any_part_of_the_rest() {
        let recording = Recording::new(
            Image::new(16 * 512),
            vec![
                write(0, 2),
                Event::Commit(CommitEvent::Started(1)),
                Event::Flush,
                Event::Commit(CommitEvent::Durable(1)),
                write(4, 3),
                Event::Commit(CommitEvent::Started(2)),
                write(8, 2),
            ],
        );
        assert_eq!(recording.spans(), [0..3, 3..7]);
        assert_eq!(recording.commits_at(3), (0, 1));
        assert_eq!(recording.commits_at(7), (1, 2));
        let mut random = Random::from_seed(1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..30_000 {
            let (image, end) = recording.crash_image(&(3..7), &units(0..0), &mut random);
            let found = sectors(&image);
            assert!(found[0] && found[1], "what was flushed stays");
            assert!(end > 4 || !found[4..7].contains(&true), "not written yet");
            assert!(end > 6 || !found[8..].contains(&true), "not written yet");
            assert!(![2, 3, 7, 10, 15].iter().any(|never| found[*never]));
            seen.insert(found);
        }
        assert_eq!(seen.len(), 1 << 5, "every subset of five sectors comes up");
    }
}
