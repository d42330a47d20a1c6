//! All rows with their samples as JSON, for other programs.

use serde_json::{Map, Value, json};

use super::{Row, Target};
use crate::machine::Machine;
use crate::measure::Series;

pub fn json(machine: &Machine, (rounds, scale): (usize, f64), rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows.iter().map(row_json).collect();
    json!({ "machine": machine.json(), "rounds": rounds, "scale": scale, "rows": rows })
}

fn row_json(row: &Row) -> Value {
    let sides: Map<String, Value> = row
        .sides
        .iter()
        .map(|(side, series)| (side.name().to_owned(), series_json(series)))
        .collect();
    json!({
        "workload": row.workload,
        "row": row.name.trim(),
        "sides": sides,
        "reference": row.reference.name(),
        "ratio": row.ratio(),
        "figure": row.figure.map(|figure| json!({
            "value": figure.value, "unit": figure.unit, "at_most": figure.at_most,
        })),
        "target": target_json(row.target),
        "met": row.is_met(),
        "native_to_overlay": row.to_overlay(),
        "note": row.note,
    })
}

fn series_json(series: &Series) -> Value {
    json!({
        "median_ms": series.median(), "min_ms": series.min(), "max_ms": series.max(),
        "all_ms": series.all().collect::<Vec<f64>>(),
        "view_requests": series.requests(), "flushes": series.flushes(), "bytes_written": series.bytes_written(),
        "processor_ms": series.processor_milliseconds(),
    })
}

fn target_json(target: Target) -> Value {
    match target {
        Target::Ratio(most) => json!({ "ratio_at_most": most }),
        Target::Faster(least) => json!({ "faster_at_least": least }),
        Target::OverMilliseconds(most) => json!({ "over_ms_at_most": most }),
        Target::Milliseconds(most) => json!({ "ms_at_most": most }),
        Target::None => Value::Null,
    }
}
