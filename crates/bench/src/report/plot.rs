//! The same as drawings: one of all ratios, and one for each row of points.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::table::short;
use super::{Row, Target};
use crate::error::{Describe, Result};
use crate::machine::Machine;
use crate::measure::Side;
use crate::programs::make_directory;

pub fn write_plots(directory: &Path, machine: &Machine, rows: &[Row]) -> Result<()> {
    make_directory(directory)?;
    let write = |name: &str, drawing: String| {
        let path = directory.join(name).with_extension("svg");
        fs::write(&path, drawing).describe("write", &path)
    };
    let ratios: Vec<&Row> = rows.iter().filter(|row| row.ratio().is_some()).collect();
    if !ratios.is_empty() {
        write("ratios", bars(machine, &ratios))?;
    }
    let mut plots: Vec<&str> = Vec::new();
    for point in rows.iter().filter_map(|row| row.point.as_ref()) {
        if !plots.contains(&point.plot.as_str()) {
            plots.push(&point.plot);
        }
    }
    for plot in plots {
        let name = plot.to_lowercase().replace([' ', ','], "-");
        write(&name.replace("--", "-"), lines(machine, plot, rows))?;
    }
    Ok(())
}

fn colour(side: Side) -> &'static str {
    match side {
        Side::Plain => "#7f7f7f",
        Side::Logger => "#bcbd22",
        Side::Overlay => "#9467bd",
        Side::Exact => "#1f77b4",
        Side::Native => "#2ca02c",
        Side::Append => "#9467bd",
        Side::Embedded => "#8c564b",
        Side::Service => "#e377c2",
        Side::Sqlite => "#bcbd22",
        Side::Lmdb => "#17becf",
        Side::BerkeleyDb => "#393b79",
        Side::Fstx => "#637939",
        Side::Tool => "#1f77b4",
        Side::Maildrop | Side::BackLdif => "#7f7f7f",
        Side::Procmail => "#bcbd22",
    }
}

/// A drawing that grows by elements.
struct Drawing(String);

impl Drawing {
    fn new(width: f64, height: f64) -> Drawing {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        ))
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    fn path(&mut self, points: &[(f64, f64)], stroke: &str) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.0,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A logarithmic axis: twice as slow is as far from equal as twice as fast.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        Axis {
            least: 10_f64.powf(least.log10().floor()),
            most: 10_f64.powf(most.log10().ceil()).max(least * 10.0),
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value / self.least).log10() / (self.most / self.least).log10();
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        let least = self.least;
        let count = (self.most / self.least).log10().round() as i32;
        (0..=count).map(move |power| least * 10_f64.powi(power))
    }
}

/// The ratio of each view to the reference, with the target as a red mark.
fn bars(machine: &Machine, rows: &[&Row]) -> String {
    const ROW: f64 = 22.0;
    const TOP: f64 = 56.0;
    let bottom = TOP + ROW * rows.len() as f64;
    let mut drawing = Drawing::new(860.0, bottom + 30.0);
    drawing.text(
        10.0,
        16.0,
        "start",
        "Time in a transaction to the time without (left is faster)",
    );
    drawing.text(10.0, 32.0, "start", &machine.line());
    legend(&mut drawing, 48.0, &[Side::Exact, Side::Native]);
    let views = |row: &Row| [Side::Exact, Side::Native].map(|side| row.ratio_of(side));
    let ratios: Vec<f64> = rows
        .iter()
        .flat_map(|row| views(row).into_iter().chain([target_ratio(row)]))
        .flatten()
        .chain([1.0])
        .collect();
    let axis = Axis::over(ratios.into_iter(), 240.0, 800.0);
    for decade in axis.decades() {
        let x = axis.at(decade);
        let stroke = if decade == 1.0 { "black" } else { "#dddddd" };
        drawing.line((x, TOP), (x, bottom), stroke);
        drawing.text(x, bottom + 14.0, "middle", &format!("{}x", short(decade)));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        drawing.text(232.0, y + 14.0, "end", row.workload.trim());
        for (slot, side) in [Side::Exact, Side::Native].into_iter().enumerate() {
            let Some(ratio) = row.ratio_of(side) else {
                continue;
            };
            let (start, end) = (axis.at(1.0), axis.at(ratio));
            let y = y + 3.0 + 8.0 * slot as f64;
            drawing.bar(
                start.min(end),
                y,
                (end - start).abs().max(1.0),
                7.0,
                colour(side),
            );
        }
        if let Some(target) = target_ratio(row) {
            let x = axis.at(target);
            drawing.line((x, y + 1.0), (x, y + ROW - 2.0), "red");
        }
    }
    drawing.end()
}

fn target_ratio(row: &Row) -> Option<f64> {
    match row.target {
        Target::Ratio(most) => Some(most),
        Target::Faster(least) => Some(least.recip()),
        _ => None,
    }
}

fn legend(drawing: &mut Drawing, y: f64, sides: &[Side]) {
    let mut x = 240.0;
    for side in sides {
        drawing.bar(x, y - 8.0, 10.0, 8.0, colour(*side));
        drawing.text(x + 14.0, y, "start", side.name());
        x += 80.0;
    }
}

/// The time of each side over what changes.
fn lines(machine: &Machine, plot: &str, rows: &[Row]) -> String {
    const BOTTOM: f64 = 300.0;
    let points: Vec<(&Row, f64, &str)> = rows
        .iter()
        .filter_map(|row| {
            let point = row.point.as_ref().filter(|point| point.plot == plot)?;
            Some((row, point.at, point.axis))
        })
        .collect();
    let sides: Vec<Side> = Side::ALL
        .into_iter()
        .filter(|side| points.iter().any(|(row, ..)| row.sides.of(*side).is_some()))
        .collect();
    let mut drawing = Drawing::new(640.0, BOTTOM + 40.0);
    drawing.text(10.0, 16.0, "start", &format!("{plot}: median milliseconds"));
    drawing.text(10.0, 32.0, "start", &machine.line());
    legend(&mut drawing, 48.0, &sides);
    let times: Vec<f64> = points
        .iter()
        .flat_map(|(row, ..)| row.sides.iter())
        .map(|(_, series)| series.median())
        .collect();
    let axis = Axis::over(times.into_iter(), BOTTOM, 60.0);
    for decade in axis.decades() {
        let y = axis.at(decade);
        drawing.line((60.0, y), (620.0, y), "#dddddd");
        drawing.text(54.0, y + 4.0, "end", &short(decade));
    }
    // The points stand evenly: they were chosen by doubling.
    let x = |index: usize| 90.0 + 500.0 * index as f64 / (points.len().max(2) - 1) as f64;
    for (index, (_, at, unit)) in points.iter().enumerate() {
        drawing.text(x(index), BOTTOM + 16.0, "middle", &format!("{at} {unit}"));
    }
    for side in sides {
        let path: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter_map(|(index, (row, ..))| {
                let series = row.sides.of(side)?;
                Some((x(index), axis.at(series.median())))
            })
            .collect();
        drawing.path(&path, colour(side));
    }
    drawing.end()
}
