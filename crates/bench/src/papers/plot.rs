//! One drawing for each paper: its ratios and ours on one axis.

use std::fs;
use std::path::Path;

use super::draw::{Axis, Drawing};
use super::measured::{Found, Measured};
use super::{ALL, Figure, OURS, Ours, Paper, Unit};
use crate::error::{Describe, Result};
use crate::measure::Side;
use crate::programs::make_directory;
use crate::report::short;

const LINE: f64 = 22.0;
const TOP: f64 = 78.0;
const LEFT: f64 = 360.0;
const RIGHT: f64 = 860.0;
const PAPER_COLOUR: &str = "red";

pub fn write_plots(directory: &Path, measured: &Measured) -> Result<()> {
    make_directory(directory)?;
    for paper in ALL {
        let path = directory.join(paper.key).with_extension("svg");
        fs::write(&path, drawing(paper, measured)).describe("write", &path)?;
    }
    Ok(())
}

/// A figure's ratios, the paper's and ours. Lower is better.
struct Line {
    what: &'static str,
    paper: Option<f64>,
    ours: Vec<(Side, f64)>,
}

impl Line {
    /// `None` if there is nothing to draw.
    fn of(figure: &Figure, measured: &Measured) -> Option<Line> {
        let less = |ratio: f64| match figure.unit {
            Unit::Fast => ratio.recip(),
            _ => ratio,
        };
        let ours = match measured.found(figure) {
            Found::Ratios(ratios) => ratios,
            _ => return None,
        };
        // The growth of a time is not a ratio to another side.
        let is_growth = matches!(figure.ours, Ours::Growth { .. });
        let line = Line {
            what: figure.what,
            paper: figure.value.map(less),
            ours: ours
                .into_iter()
                .map(|(side, ratio)| (side, less(ratio)))
                .collect(),
        };
        (!is_growth && (line.paper.is_some() || !line.ours.is_empty())).then_some(line)
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.paper
            .into_iter()
            .chain(self.ours.iter().map(|(_, ratio)| *ratio))
    }
}

fn drawing(paper: &Paper, measured: &Measured) -> String {
    let figures = paper.figures.iter();
    let lines: Vec<Line> = figures
        .filter_map(|figure| Line::of(figure, measured))
        .collect();
    let bottom = TOP + LINE * lines.len() as f64;
    let mut drawing = Drawing::new(RIGHT + 30.0, bottom + 30.0);
    drawing.text(10.0, 16.0, "start", paper.title);
    let meaning = "Time, flushes or bytes, to those without transactions: left is better.";
    drawing.text(10.0, 32.0, "start", meaning);
    drawing.text(10.0, 48.0, "start", &measured.machine);
    legend(&mut drawing, &lines);
    // The drawing always shows the ratio 1.
    let ratios: Vec<f64> = lines.iter().flat_map(Line::ratios).chain([1.0]).collect();
    let axis = Axis::over(ratios.into_iter(), LEFT, RIGHT);
    for decade in axis.decades() {
        let x = axis.at(decade);
        let stroke = if decade == 1.0 { "black" } else { "#dddddd" };
        drawing.line((x, TOP), (x, bottom), stroke);
        drawing.text(x, bottom + 14.0, "middle", &format!("{}x", short(decade)));
    }
    for (index, line) in lines.iter().enumerate() {
        draw_line(&mut drawing, &axis, line, TOP + LINE * index as f64);
    }
    drawing.end()
}

/// Draws our sides as bars that start at the ratio 1, and the paper's ratio as a mark across them.
fn draw_line(drawing: &mut Drawing, axis: &Axis, line: &Line, y: f64) {
    drawing.text(LEFT - 8.0, y + 15.0, "end", line.what);
    let height = (LINE - 6.0) / line.ours.len().max(1) as f64;
    for (index, (side, ratio)) in line.ours.iter().enumerate() {
        let (start, end) = (axis.at(1.0), axis.at(*ratio));
        let width = (end - start).abs().max(1.0);
        let y = y + 3.0 + height * index as f64;
        drawing.bar(start.min(end), y, width, height - 1.0, colour(*side));
    }
    if let Some(paper) = line.paper {
        drawing.bar(axis.at(paper) - 1.5, y + 1.0, 3.0, LINE - 2.0, PAPER_COLOUR);
    }
}

fn legend(drawing: &mut Drawing, lines: &[Line]) {
    let is_drawn = |side: &Side| {
        let mut ours = lines.iter().flat_map(|line| &line.ours);
        ours.any(|(of, _)| of == side)
    };
    let sides = OURS.iter().copied().filter(is_drawn);
    let names = sides.map(|side| (side.name(), colour(side)));
    let mut x = LEFT;
    for (name, colour) in names.chain([("the paper", PAPER_COLOUR)]) {
        drawing.bar(x, 58.0, 10.0, 8.0, colour);
        drawing.text(x + 14.0, 66.0, "start", name);
        x += 90.0;
    }
}

fn colour(side: Side) -> &'static str {
    match side {
        Side::Native => "#2ca02c",
        Side::Embedded => "#8c564b",
        Side::Service => "#e377c2",
        // Exact views and tools, which no figure has both.
        _ => "#1f77b4",
    }
}
