//! One table for each paper, for the terminal.

use super::measured::{Found, Measured};
use super::{ALL, Figure, Ours, Unit};
use crate::measure::Side;
use crate::report::{aligned, short};

pub const HEADING: [&str; 4] = ["measured", "paper", "here", "remark"];

pub fn table(measured: &Measured) -> String {
    let mut text = format!("{}\n", measured.machine);
    for paper in ALL {
        let mut lines = vec![HEADING.map(str::to_owned).to_vec()];
        lines.extend(
            paper
                .figures
                .iter()
                .map(|figure| line(figure, measured).to_vec()),
        );
        text.push_str(&format!("\n{}\n\n{}", paper.title, aligned(&lines)));
    }
    text
}

/// The cells of a figure's line, one for each column of `HEADING`.
pub fn line(figure: &Figure, measured: &Measured) -> [String; 4] {
    [
        figure.what.to_owned(),
        theirs(figure),
        ours(figure, &measured.found(figure)),
        figure.remark.to_owned(),
    ]
}

fn theirs(figure: &Figure) -> String {
    let Some(value) = figure.value else {
        return figure.also.to_owned();
    };
    let ratio = format!("{value}x {}", figure.unit.name());
    match figure.also {
        "" => ratio,
        also => format!("{ratio} ({also})"),
    }
}

fn ours(figure: &Figure, found: &Found) -> String {
    let ratios = match found {
        Found::Nowhere => return String::new(),
        Found::NoRow => return "no such row".to_owned(),
        Found::Bytes(bytes) => return format!("{} bytes", short(*bytes)),
        Found::Ratios(ratios) if ratios.is_empty() => return "not in this run".to_owned(),
        Found::Ratios(ratios) => ratios,
    };
    let is_growth = matches!(figure.ours, Ours::Growth { .. });
    let ratio = |(side, ratio): &(Side, f64)| match side {
        _ if is_growth => format!("{}x", short(*ratio)),
        // A tool is the only side of ours, so its name is left out.
        Side::Tool => format!("{}x", short(*ratio)),
        side => format!("{side} {}x", short(*ratio)),
    };
    let ratios: Vec<String> = ratios.iter().map(ratio).collect();
    let unit = match figure.unit {
        Unit::Long if is_growth => String::new(),
        unit => format!(" {}", unit.name()),
    };
    format!("{}{unit}", ratios.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::fast;

    #[test]
    fn cells_name_the_sides_and_the_unit() {
        let figure = fast("what", 1.5).also("or 2x");
        assert_eq!(theirs(&figure), "1.5x as fast (or 2x)");
        let found = Found::Ratios(vec![(Side::Exact, 0.5), (Side::Native, 1.0)]);
        assert_eq!(ours(&figure, &found), "exact 0.500x, native 1.00x as fast");
        assert_eq!(ours(&figure, &Found::Ratios(vec![])), "not in this run");
    }

    #[test]
    fn every_figure_is_measured_or_has_a_remark() {
        for figure in ALL.iter().flat_map(|paper| paper.figures) {
            let is_measured = figure.workload().is_some();
            assert!(is_measured || !figure.remark.is_empty(), "{}", figure.what);
            assert!(!figure.what.is_empty());
        }
    }

    #[test]
    fn figures_name_workloads_that_exist() {
        let workloads = crate::workloads::ALL;
        for workload in ALL
            .iter()
            .flat_map(|paper| paper.figures)
            .filter_map(Figure::workload)
        {
            assert!(
                workloads.iter().any(|(name, _)| *name == workload),
                "{workload}"
            );
        }
    }
}
