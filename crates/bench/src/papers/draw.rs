//! Drawings in SVG, and the axis for their ratios.

use std::fmt::Write as _;

/// A drawing, to which elements are added.
pub struct Drawing(String);

impl Drawing {
    pub fn new(width: f64, height: f64) -> Drawing {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        ))
    }

    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A logarithmic axis: half and double are equally far from 1.
pub struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    pub fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        Axis {
            least: 10_f64.powf(least.log10().floor()),
            most: 10_f64.powf(most.log10().ceil()).max(least * 10.0),
            from,
            to,
        }
    }

    pub fn at(&self, value: f64) -> f64 {
        let part = (value / self.least).log10() / (self.most / self.least).log10();
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub fn decades(&self) -> impl Iterator<Item = f64> {
        let least = self.least;
        let count = (self.most / self.least).log10().round() as i32;
        (0..=count).map(move |power| least * 10_f64.powi(power))
    }
}
