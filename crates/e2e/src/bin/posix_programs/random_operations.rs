//! Random operations on the contents of a few files, and a model in memory of their result.
//! The same seed gives the same operations, whatever happened to the files.

use crate::check::pattern;

pub const FILES: usize = 4;
const LENGTH_MAX: usize = 1 << 20;
const PAGE: usize = 4096;
const OPERATIONS_PER_ROUND: usize = 30;

#[derive(Debug, Clone, Copy)]
pub enum Through {
    Descriptor,
    Map,
    Append,
}

#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Read {
        file: usize,
        offset: usize,
        length: usize,
        through: Through,
    },
    Write {
        file: usize,
        offset: usize,
        length: usize,
        seed: u64,
        through: Through,
    },
    Truncate {
        file: usize,
        length: usize,
    },
    Punch {
        file: usize,
        offset: usize,
        length: usize,
    },
    Zero {
        file: usize,
        offset: usize,
        length: usize,
    },
    Copy {
        from: usize,
        to: usize,
        from_offset: usize,
        to_offset: usize,
        length: usize,
    },
    /// Writes another file and renames it over this one.
    Replace {
        file: usize,
        length: usize,
        seed: u64,
    },
    Sync {
        file: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub files: Vec<Vec<u8>>,
}

impl Model {
    pub fn start(seed: u64) -> Self {
        let length = |file: usize| [0, 3 * PAGE, 100_001, 900_000][file];
        Self {
            files: (0..FILES)
                .map(|file| pattern(seed ^ file as u64, length(file)))
                .collect(),
        }
    }

    /// The model when this many rounds have been done.
    pub fn after(seed: u64, rounds: u64) -> Self {
        let mut model = Self::start(seed);
        for round in 0..rounds {
            model
                .play(seed, round, |_, _| Ok::<(), std::convert::Infallible>(()))
                .unwrap_or(());
        }
        model
    }

    /// Does one round. `perform` gets each operation and the model before it, and may stop the
    /// round by an error.
    pub fn play<E>(
        &mut self,
        seed: u64,
        round: u64,
        mut perform: impl FnMut(Operation, &Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(round));
        for _ in 0..OPERATIONS_PER_ROUND {
            let operation = self.next(&mut random);
            perform(operation, self)?;
            self.apply(operation);
        }
        Ok(())
    }

    fn next(&self, random: &mut Random) -> Operation {
        let file = random.below(FILES);
        let length = self.files[file].len();
        let seed = random.number();
        match random.below(16) {
            0..=2 => {
                let (offset, count) = random.range_within(length);
                let through = if random.below(2) == 0 {
                    Through::Descriptor
                } else {
                    Through::Map
                };
                Operation::Read {
                    file,
                    offset,
                    length: count,
                    through,
                }
            }
            3..=6 => {
                let (offset, count) = random.range();
                Operation::Write {
                    file,
                    offset,
                    length: count,
                    seed,
                    through: Through::Descriptor,
                }
            }
            7..=8 => {
                let (offset, count) = random.range_within(length);
                Operation::Write {
                    file,
                    offset,
                    length: count,
                    seed,
                    through: Through::Map,
                }
            }
            9 => {
                let count = random.below(20_000).min(LENGTH_MAX - length);
                Operation::Write {
                    file,
                    offset: length,
                    length: count,
                    seed,
                    through: Through::Append,
                }
            }
            10 => Operation::Truncate {
                file,
                length: random.range().0,
            },
            11 => {
                let (offset, length) = random.range();
                Operation::Punch {
                    file,
                    offset,
                    length: length + 1,
                }
            }
            12 => {
                let (offset, length) = random.range();
                Operation::Zero {
                    file,
                    offset,
                    length: length + 1,
                }
            }
            13 => {
                let (from_offset, count) = random.range_within(length);
                let to_offset = random.range().0.min(LENGTH_MAX - count);
                let to = (file + 1 + random.below(FILES - 1)) % FILES;
                Operation::Copy {
                    from: file,
                    to,
                    from_offset,
                    to_offset,
                    length: count,
                }
            }
            14 => Operation::Replace {
                file,
                length: random.below(50_000),
                seed,
            },
            _ => Operation::Sync { file },
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Read { .. } | Operation::Sync { .. } => {}
            Operation::Write {
                file,
                offset,
                length,
                seed,
                ..
            } => {
                self.put(file, offset, &pattern(seed, length));
            }
            Operation::Truncate { file, length } => self.files[file].resize(length, 0),
            Operation::Punch {
                file,
                offset,
                length,
            } => {
                let end = (offset + length).min(self.files[file].len());
                self.files[file][offset.min(end)..end].fill(0);
            }
            Operation::Zero {
                file,
                offset,
                length,
            } => self.put(file, offset, &vec![0; length]),
            Operation::Copy {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => {
                let bytes = self.files[from][from_offset..from_offset + length].to_vec();
                self.put(to, to_offset, &bytes);
            }
            Operation::Replace { file, length, seed } => self.files[file] = pattern(seed, length),
        }
    }

    /// Writing nothing changes nothing, not even the length.
    fn put(&mut self, file: usize, offset: usize, bytes: &[u8]) {
        let contents = &mut self.files[file];
        let end = offset + bytes.len();
        if !bytes.is_empty() && contents.len() < end {
            contents.resize(end, 0);
        }
        if !bytes.is_empty() {
            contents[offset..end].copy_from_slice(bytes);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// The offset and length of a range that may lie behind the end. Many ranges start or end at
    /// page boundaries or a byte beside them, where mistakes are likely.
    fn range(&mut self) -> (usize, usize) {
        let offset = self.place(LENGTH_MAX - 80_000);
        let length = match self.below(4) {
            0 => self.below(20),
            1 => self.below(PAGE),
            2 => PAGE * (1 + self.below(4)),
            _ => self.below(70_000),
        };
        (offset, length)
    }

    fn range_within(&mut self, length: usize) -> (usize, usize) {
        let offset = self.place(length + 1).min(length);
        let count = self.below(70_000).min(length - offset);
        (offset, count)
    }

    fn place(&mut self, bound: usize) -> usize {
        let place = self.below(bound);
        let page = place - place % PAGE;
        match self.below(4) {
            0 => page,
            1 => (page + 1).min(bound - 1),
            2 => page.saturating_sub(1),
            _ => place,
        }
    }
}
