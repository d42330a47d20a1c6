//! Folds changes that a user decides on as one: the files of a repository in `.git` or `.hg`, and
//! what is in a directory that is new or gone.

use super::Rights;
use super::list::show_line;
use crate::output::{Painter, Style, counted, quoted};
use atomdir::Change;
use atomdir::client::ChangeLine;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A directory with fewer changes is not folded.
const CHANGES_MIN: usize = 4;
/// Directories of programs, whose files have a meaning only together.
const OPAQUE: [&[u8]; 2] = [b".git", b".hg"];

/// Places in the list of changes.
#[derive(Debug, PartialEq, Eq)]
pub enum Group {
    One(usize),
    Heap(Heap),
}

/// The changes in a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Heap {
    pub directory: Vec<u8>,
    pub places: Vec<usize>,
}

/// Changes that are shown one by one come first. Those that give programs rights are always among them.
pub fn fold(lines: &[ChangeLine], rights: &Rights) -> Vec<Group> {
    let whole = lines.iter();
    let whole = whole.filter(|line| matches!(line.change, Change::Added | Change::Deleted));
    let whole: BTreeSet<&[u8]> = whole.map(|line| &line.path[..]).collect();
    let mut heaps: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (place, line) in lines.iter().enumerate() {
        if rights.of(place).is_none()
            && let Some(directory) = heap_of(&line.path, &whole)
        {
            heaps.entry(directory).or_default().push(place);
        }
    }
    heaps.retain(|_, places| places.len() >= CHANGES_MIN);
    let folded: BTreeSet<usize> = heaps.values().flatten().copied().collect();
    let ones = (0..lines.len()).filter(|place| !folded.contains(place));
    let heaps = heaps.into_iter().map(|(directory, places)| Heap {
        directory: directory.to_vec(),
        places,
    });
    ones.map(Group::One).chain(heaps.map(Group::Heap)).collect()
}

/// The outermost directory with which the path belongs.
fn heap_of<'a>(path: &'a [u8], whole: &BTreeSet<&[u8]>) -> Option<&'a [u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([path.len()]);
    let mut above = ends.map(|end| &path[..end]);
    above.find(|directory| {
        let name = directory.rsplit(|byte| *byte == b'/').next();
        whole.contains(directory) || name.is_some_and(|name| OPAQUE.contains(&name))
    })
}

impl Heap {
    pub fn show(&self, lines: &[ChangeLine], painter: &mut Painter<'_>) -> io::Result<()> {
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for place in &self.places {
            *counts.entry(lines[*place].change.letter()).or_default() += 1;
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(letter, count)| format!("{count} {letter}"))
            .collect();
        painter.paint(Style::Heading, "*")?;
        writeln!(
            painter,
            " {}/: {} ({})",
            quoted(&self.directory),
            counted(self.places.len() as u64, "change"),
            counts.join(", ")
        )
    }
}

/// One line for each change, and one for each heap.
pub struct FoldedList<'a> {
    pub lines: &'a [ChangeLine],
    pub rights: &'a Rights,
    pub groups: &'a [Group],
}

impl FoldedList<'_> {
    pub fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for group in self.groups {
            match group {
                Group::One(place) => {
                    show_line(&self.lines[*place], self.rights.of(*place), painter)?;
                }
                Group::Heap(heap) => heap.show(self.lines, painter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ChangeLine {
        let change = match &text[..1] {
            "A" => Change::Added,
            "D" => Change::Deleted,
            _ => Change::Modified,
        };
        ChangeLine {
            change,
            path: text[2..].into(),
            from: None,
        }
    }

    #[test]
    fn repositories_and_whole_directories_are_folded() {
        let lines = [
            "M .git/COMMIT_EDITMSG",
            "M .git/index",
            "A .git/objects/ab",
            "A .git/objects/ab/c",
            "A new",
            "A new/a",
            "A new/b",
            "A new/b/c",
            "A small",
            "A small/a",
            "M src/main.rs",
            "M x.git/a",
        ];
        let lines: Vec<ChangeLine> = lines.iter().map(|text| line(text)).collect();
        let heap = |directory: &str, places: [usize; 4]| {
            Group::Heap(Heap {
                directory: directory.into(),
                places: places.to_vec(),
            })
        };
        let ones = [8, 9, 10, 11].map(Group::One).into_iter();
        let heaps = [heap(".git", [0, 1, 2, 3]), heap("new", [4, 5, 6, 7])];
        let expected: Vec<Group> = ones.chain(heaps).collect();
        assert_eq!(fold(&lines, &Rights::default()), expected);
    }
}
