//! The table that is printed: medians in milliseconds, each with half of the range between the
//! lowest and the highest sample, in percent.

use super::{OVERLAY_RATIO_MAX, Row, Target};
use crate::measure::{Series, Side};

pub fn table(rows: &[Row]) -> String {
    let sides: Vec<Side> = Side::ALL
        .into_iter()
        .filter(|side| rows.iter().any(|row| row.sides.of(*side).is_some()))
        .collect();
    let mut header = vec!["workload".to_owned()];
    header.extend(sides.iter().map(|side| format!("{side} ms")));
    header.extend(
        [
            "result",
            "target",
            "",
            "requests",
            "flushes",
            "MiB written",
            "note",
        ]
        .map(str::to_owned),
    );
    let mut lines = vec![header];
    for row in rows {
        let mut line = vec![row.name.clone()];
        line.extend(sides.iter().map(|side| span(row.sides.of(*side))));
        line.extend([
            result(row),
            target(row),
            verdict(row).to_owned(),
            counts(row, Series::requests, |count| format!("{count}")),
            counts(row, Series::flushes, |count| format!("{count}")),
            counts(row, Series::bytes_written, |bytes| {
                short(bytes / f64::from(1 << 20))
            }),
            note(row),
        ]);
        lines.push(line);
    }
    aligned(&lines)
}

fn span(series: Option<&Series>) -> String {
    let Some(series) = series.filter(|series| !series.is_empty()) else {
        return String::new();
    };
    let half = (series.max() - series.min()) / 2.0;
    let percent = half / series.median() * 100.0;
    format!("{} ±{percent:.0}%", short(series.median()))
}

/// Shows a number with about three digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn result(row: &Row) -> String {
    if let Some(figure) = row.figure {
        return format!("{} {}", short(figure.value), figure.unit);
    }
    let shown = match row.target {
        Target::Faster(_) => row
            .ratio()
            .map(|ratio| format!("{}x faster", short(ratio.recip()))),
        Target::OverMilliseconds(_) => row
            .over_milliseconds()
            .map(|over| format!("+{} ms", short(over))),
        Target::Milliseconds(_) => None,
        Target::Ratio(_) | Target::None => row.ratio().map(|ratio| format!("{}x", short(ratio))),
    };
    shown.unwrap_or_default()
}

fn target(row: &Row) -> String {
    if let Some(figure) = row.figure {
        return figure
            .at_most
            .map_or_else(String::new, |most| format!("{most} {}", figure.unit));
    }
    match row.target {
        Target::Ratio(most) => format!("{most}x"),
        Target::Faster(least) => format!("{least}x faster"),
        Target::OverMilliseconds(most) => format!("+{most} ms"),
        Target::Milliseconds(most) => format!("{most} ms"),
        Target::None => String::new(),
    }
}

fn verdict(row: &Row) -> &'static str {
    match row.is_met() {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

/// The values of the reference and of the better view.
fn counts(row: &Row, of: impl Fn(&Series) -> Option<f64>, show: impl Fn(f64) -> String) -> String {
    let reference = row.sides.of(row.reference).and_then(&of);
    let best = row.sides.best_view().and_then(&of);
    match (reference, best) {
        (Some(reference), Some(best)) => format!("{} / {}", show(reference), show(best)),
        (None, Some(best)) => show(best),
        _ => String::new(),
    }
}

fn note(row: &Row) -> String {
    let Some(ratio) = row.to_overlay() else {
        return row.note.clone();
    };
    let verdict = if ratio <= OVERLAY_RATIO_MAX {
        "met"
    } else {
        "missed"
    };
    let beside = format!("native to overlay {}x, {verdict}", short(ratio));
    match row.note.as_str() {
        "" => beside,
        note => format!("{note}; {beside}"),
    }
}

/// Aligns the cells in columns. The first line is the heading.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let lengths = lines.iter().map(|line| line[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sides;

    #[test]
    fn every_column_has_a_heading_and_is_shown() {
        let row = Row::new("workload", Sides::default()).note("the last column");
        let shown = table(&[row]);
        let (header, line) = shown.split_once('\n').expect("two lines");
        assert_eq!(header.find("note"), line.find("the last column"), "{shown}");
    }
}
