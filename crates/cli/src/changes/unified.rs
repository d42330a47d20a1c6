//! Unified diffs of contents, line by line, in the form patch(1) reads.

use crate::output::{Painter, Style};
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};
use std::io::{self, Write};
use std::ops::Range;

const CONTEXT_LINES: usize = 3;

/// A place that differs.
pub struct Hunk(Vec<DiffOp>);

impl Hunk {
    fn old_lines(&self) -> Range<usize> {
        let first = self.0.first().map_or(0, |first| first.old_range().start);
        let last = self.0.last().map_or(0, |last| last.old_range().end);
        first..last
    }
}

pub struct Comparison<'a> {
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    operations: Vec<DiffOp>,
}

impl<'a> Comparison<'a> {
    pub fn new(old: &'a [u8], new: &'a [u8]) -> Comparison<'a> {
        let lines = |text: &'a [u8]| text.split_inclusive(|byte| *byte == b'\n').collect();
        let (old, new): (Vec<_>, Vec<_>) = (lines(old), lines(new));
        let operations = capture_diff_slices(Algorithm::Myers, &old, &new);
        Comparison {
            old,
            new,
            operations,
        }
    }

    /// The numbers of added and removed lines.
    pub(super) fn count(&self) -> (u64, u64) {
        let mut count = (0, 0);
        for operation in &self.operations {
            if operation.tag() != DiffTag::Equal {
                count.0 += operation.new_range().len() as u64;
                count.1 += operation.old_range().len() as u64;
            }
        }
        count
    }

    /// The places that differ, with the lines around them.
    pub fn hunks(&self) -> Vec<Hunk> {
        let hunks = group_diff_ops(self.operations.clone(), CONTEXT_LINES).into_iter();
        hunks.filter(|hunk| !hunk.is_empty()).map(Hunk).collect()
    }

    pub(super) fn show_hunks(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let hunks = self.hunks();
        hunks
            .iter()
            .try_for_each(|hunk| self.show_hunk(painter, hunk))
    }

    pub fn show_hunk(&self, painter: &mut Painter<'_>, Hunk(hunk): &Hunk) -> io::Result<()> {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            return Ok(());
        };
        let old = place(first.old_range().start..last.old_range().end);
        let new = place(first.new_range().start..last.new_range().end);
        painter.line(Style::Position, format!("@@ -{old} +{new} @@"))?;
        let mut operations = hunk.iter();
        operations.try_for_each(|operation| self.show_operation(painter, operation))
    }

    /// The old text with only these hunks applied.
    pub fn with_hunks(&self, wanted: &[bool]) -> Vec<u8> {
        let hunks = self.hunks();
        let chosen = hunks.iter().zip(wanted).filter(|(_, wanted)| **wanted);
        let chosen: Vec<Range<usize>> = chosen.map(|(hunk, _)| hunk.old_lines()).collect();
        let mut text = Vec::new();
        for operation in &self.operations {
            let old = operation.old_range();
            let is_in = |lines: &Range<usize>| lines.start <= old.start && old.end <= lines.end;
            let lines = match operation.tag() != DiffTag::Equal && chosen.iter().any(is_in) {
                true => &self.new[operation.new_range()],
                false => &self.old[old.clone()],
            };
            lines.iter().for_each(|line| text.extend_from_slice(line));
        }
        text
    }

    fn show_operation(&self, painter: &mut Painter<'_>, operation: &DiffOp) -> io::Result<()> {
        let old = &self.old[operation.old_range()];
        if operation.tag() == DiffTag::Equal {
            return show_lines(painter, Style::Plain, b' ', old);
        }
        show_lines(painter, Style::Removed, b'-', old)?;
        show_lines(
            painter,
            Style::Added,
            b'+',
            &self.new[operation.new_range()],
        )
    }
}

fn show_lines(
    painter: &mut Painter<'_>,
    style: Style,
    sign: u8,
    lines: &[&[u8]],
) -> io::Result<()> {
    for line in lines {
        let text = line.strip_suffix(b"\n");
        painter.contents_line(style, &[&[sign], text.unwrap_or(line)].concat())?;
        if text.is_none() {
            painter.write_all(b"\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

/// Lines count from 1. An empty range names the line before it.
fn place(range: Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unified(old: &str, new: &str) -> String {
        let mut text = Vec::new();
        let comparison = Comparison::new(old.as_bytes(), new.as_bytes());
        comparison.show_hunks(&mut Painter::new(&mut text)).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn hunks_are_those_of_diff() {
        assert_eq!(unified("", "a\nb\n"), "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(unified("a\n", ""), "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(
            unified("1\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive"),
            "@@ -2,4 +2,4 @@\n 2\n 3\n 4\n-5\n+five\n\\ No newline at end of file\n"
        );
        // A carriage return alone does not end a line.
        assert_eq!(unified("a\rb\n", "a\rc\n"), "@@ -1 +1 @@\n-a\rb\n+a\rc\n");
    }

    #[test]
    fn each_hunk_can_be_applied_alone() {
        let old: String = (0..40).map(|line| format!("{line}\n")).collect();
        let new = old.replacen("3\n", "", 1).replace("\n20\n", "\n20\nmore\n") + "end";
        let comparison = Comparison::new(old.as_bytes(), new.as_bytes());
        let with = |wanted: [bool; 3]| comparison.with_hunks(&wanted);
        assert_eq!(comparison.hunks().len(), 3);
        assert_eq!(with([false; 3]), old.as_bytes());
        assert_eq!(with([true; 3]), new.as_bytes());
        let middle = old.replace("\n20\n", "\n20\nmore\n");
        assert_eq!(with([false, true, false]), middle.as_bytes());
    }

    #[test]
    fn lines_are_counted() {
        assert_eq!(
            Comparison::new(b"a\nb\nc\n", b"a\nx\ny\nc\n").count(),
            (2, 1)
        );
    }
}
