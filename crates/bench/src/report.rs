//! One line of the table per workload.

use serde_json::{Value, json};

use crate::measure::Pair;

#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// The transaction may take this many times as long.
    Ratio(f64),
    /// The transaction may take this much longer.
    DifferenceMilliseconds(f64),
    /// Only told.
    None,
}

pub struct Line {
    pub workload: &'static str,
    pub pair: Pair,
    pub target: Target,
    pub note: String,
}

impl Line {
    fn ratio(&self) -> f64 {
        self.pair.transaction.median() / self.pair.plain.median()
    }

    fn difference(&self) -> f64 {
        self.pair.transaction.median() - self.pair.plain.median()
    }

    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::Ratio(most) => Some(self.ratio() <= most),
            Target::DifferenceMilliseconds(most) => Some(self.difference() <= most),
            Target::None => None,
        }
    }

    fn result(&self) -> String {
        match self.target {
            Target::Ratio(_) => format!("{:.2}x", self.ratio()),
            _ if self.pair.plain.all().is_empty() => {
                format!("{:.2} ms", self.pair.transaction.median())
            }
            _ => format!("+{:.2} ms", self.difference()),
        }
    }

    fn target(&self) -> String {
        match self.target {
            Target::Ratio(most) => format!("{most}x"),
            Target::DifferenceMilliseconds(most) => format!("+{most} ms"),
            Target::None => String::new(),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    fn json(&self) -> Value {
        let series = |series: &crate::measure::Series| {
            json!({ "median_ms": series.median(), "min_ms": series.min(), "max_ms": series.max(),
                    "all_ms": series.all() })
        };
        let (target_ratio, target_difference_ms) = match self.target {
            Target::Ratio(most) => (Some(most), None),
            Target::DifferenceMilliseconds(most) => (None, Some(most)),
            Target::None => (None, None),
        };
        json!({
            "workload": self.workload, "note": self.note,
            "plain": series(&self.pair.plain), "transaction": series(&self.pair.transaction),
            "ratio": self.ratio(), "difference_ms": self.difference(),
            "target_ratio": target_ratio, "target_difference_ms": target_difference_ms,
            "met": self.is_met(),
        })
    }
}

pub fn json(lines: &[Line]) -> Value {
    Value::Array(lines.iter().map(Line::json).collect())
}

/// Median with least and most, in milliseconds.
pub fn table(lines: &[Line]) -> String {
    let header = [
        "workload",
        "plain ms",
        "in a transaction ms",
        "result",
        "target",
        "",
    ];
    let mut rows: Vec<[String; 6]> = vec![header.map(str::to_owned)];
    for line in lines {
        let span = |series: &crate::measure::Series| {
            if series.all().is_empty() {
                return String::new();
            }
            let (median, min, max) = (series.median(), series.min(), series.max());
            format!("{median:.1} ({min:.1}..{max:.1})")
        };
        rows.push([
            line.workload.to_owned(),
            span(&line.pair.plain),
            span(&line.pair.transaction),
            line.result(),
            line.target(),
            [line.verdict(), line.note.as_str()]
                .join(" ")
                .trim()
                .to_owned(),
        ]);
    }
    let widths: Vec<usize> = (0..6)
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
