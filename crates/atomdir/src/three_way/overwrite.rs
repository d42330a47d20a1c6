//! How the contents of a file are replaced in a view.

use std::ops::Range;

const PAGE: usize = 4096;

/// The part of a file to write, so that it has other contents. It goes from the first page that
/// differs to the last one, since every page that is written can conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Which bytes of the new contents to write, at the same place in the file.
    pub range: Range<usize>,
    /// The length to which the file is to be cut afterwards.
    pub cut: Option<u64>,
}

impl Replacement {
    /// Finds what to write where a file has the old contents.
    pub fn new(old: &[u8], new: &[u8]) -> Replacement {
        let same_start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let start = same_start / PAGE * PAGE;
        let end = match old.len() == new.len() {
            true => {
                let backwards = old.iter().rev().zip(new.iter().rev());
                let same_end = backwards.take_while(|(a, b)| a == b).count();
                (new.len() - same_end).next_multiple_of(PAGE).min(new.len())
            }
            false => new.len(),
        };
        Replacement {
            range: start.min(end)..end,
            cut: (old.len() > new.len()).then_some(new.len() as u64),
        }
    }
}
