//! Writes the papers' tables into a document, between two marker lines.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::measured::Measured;
use super::table::{HEADING, line};
use super::{ALL, Paper};
use crate::error::{Describe, Error, Result};

const BEGIN: &str = "<!-- Written by atomdir-bench --papers: do not edit below this line. -->";
const END: &str = "<!-- Do not edit above this line. -->";

pub fn write_markdown(path: &Path, measured: &Measured) -> Result<()> {
    let document = fs::read_to_string(path).describe("read", path)?;
    let replaced = replaced(&document, &markdown(measured)).ok_or_else(|| Error::NoMarkers {
        path: path.to_owned(),
        begin: BEGIN,
        end: END,
    })?;
    fs::write(path, replaced).describe("write", path)
}

fn replaced(document: &str, generated: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{generated}\n{END}{after}"))
}

fn markdown(measured: &Measured) -> String {
    let mut text = format!("Measured on: {}.\n", measured.machine);
    for paper in ALL {
        section(&mut text, paper, measured);
    }
    text
}

fn section(text: &mut String, paper: &Paper, measured: &Measured) {
    let Paper { title, key, .. } = paper;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n## {title}\n\n{}\n", paper.text);
    let _ = writeln!(
        text,
        "| {} |\n|{}",
        HEADING.join(" | "),
        "---|".repeat(HEADING.len())
    );
    for figure in paper.figures {
        let cells = line(figure, measured).map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let _ = writeln!(text, "\n![The figures of {title}](plots/{key}.svg)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_the_marker_lines_is_replaced() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replaced(&document, "new").expect("both lines");
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n{END}\nafter\n"));
        assert_eq!(replaced(&once, "new"), Some(once));
        assert_eq!(replaced("no lines", "new"), None);
    }
}
