//! One row for each measurement, and its forms: a table, and JSON.

mod json;
mod table;

pub use json::json;
pub use table::{aligned, short, table};

use crate::measure::{Series, Side, Sides};

#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// The better view may take this many times as long as the reference.
    Ratio(f64),
    /// The reference must take this many times as long as the better view.
    Faster(f64),
    /// The better view may take this much longer than the reference.
    OverMilliseconds(f64),
    /// The better view may take this long.
    Milliseconds(f64),
    /// There is no goal: the figure is only reported.
    None,
}

/// A result that is not a time.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub value: f64,
    pub unit: &'static str,
    pub at_most: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    /// The workload that has measured the row. Set after the workload has run.
    pub workload: &'static str,
    pub sides: Sides,
    pub figure: Option<Figure>,
    pub reference: Side,
    pub target: Target,
    pub note: String,
}

/// A native view may take this many times as long as a bare overlay.
pub const OVERLAY_RATIO_MAX: f64 = 1.15;

impl Row {
    pub fn new(name: &str, sides: Sides) -> Row {
        Row {
            name: name.to_owned(),
            workload: "",
            sides,
            figure: None,
            reference: Side::Plain,
            target: Target::None,
            note: String::new(),
        }
    }

    pub fn figure(name: &str, figure: Figure) -> Row {
        Row {
            figure: Some(figure),
            ..Row::new(name, Sides::default())
        }
    }

    pub fn reference(self, reference: Side) -> Row {
        Row { reference, ..self }
    }

    pub fn target(self, target: Target) -> Row {
        Row { target, ..self }
    }

    pub fn note(self, note: &str) -> Row {
        Row {
            note: note.to_owned(),
            ..self
        }
    }

    fn reference_median(&self) -> Option<f64> {
        self.sides.of(self.reference).map(Series::median)
    }

    fn best_median(&self) -> Option<f64> {
        self.sides.best_view().map(Series::median)
    }

    /// The better view's time divided by the reference's.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.best_median()? / self.reference_median()?)
    }

    fn over_milliseconds(&self) -> Option<f64> {
        Some(self.best_median()? - self.reference_median()?)
    }

    pub fn is_met(&self) -> Option<bool> {
        if let Some(figure) = self.figure {
            return figure.at_most.map(|most| figure.value <= most);
        }
        match self.target {
            Target::Ratio(most) => Some(self.ratio()? <= most),
            Target::Faster(least) => Some(self.ratio()?.recip() >= least),
            Target::OverMilliseconds(most) => Some(self.over_milliseconds()? <= most),
            Target::Milliseconds(most) => Some(self.best_median()? <= most),
            Target::None => None,
        }
    }

    /// The native view's time divided by the bare overlay's.
    pub fn to_overlay(&self) -> Option<f64> {
        let overlay = self.sides.of(Side::Overlay)?.median();
        Some(self.sides.of(Side::Native)?.median() / overlay)
    }
}
