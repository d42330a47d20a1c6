//! Transactions of two stores that are committed together, beside one transaction of one store with the
//! same files.

use std::fs;

use atomdir::TransactionId;
use atomdir::client::{BeginOptions, Connection, Others, Side, commit_together};

use crate::bench::Bench;
use crate::error::{Describe, Result};
use crate::measure::{self, in_turns, timed};
use crate::report::{Row, Target};
use crate::workspace::Workspace;

const RATIO_MAX: f64 = 1.5;
const CONTENTS: [u8; 4096] = [b'x'; 4096];

pub fn several(bench: &Bench) -> Result<Vec<Row>> {
    let store = |name| Workspace::fresh(bench, measure::Side::Exact, name, |_| Ok(()));
    let (alone, first, second) = (store("alone")?, store("first")?, store("second")?);
    let (mut one, mut two) = (first.connect()?, second.connect()?);
    let mut only = alone.connect()?;
    let measured = in_turns(
        bench.many_rounds() * 8,
        &[measure::Side::Plain, measure::Side::Exact],
        |side| {
            bench.rest()?;
            let (sample, ()) = timed(|| match side {
                measure::Side::Plain => {
                    let id = changed(&mut only, &["a", "b"])?;
                    only.commit(id, &mut |_| {})?;
                    Ok(())
                }
                _ => {
                    let sides = [changed(&mut one, &["a"])?, changed(&mut two, &["b"])?];
                    commit_both(&mut one, &mut two, sides)
                }
            })?;
            Ok(sample.into())
        },
    )?;
    let row = Row::new("two stores, 4 KiB in each, durable", measured.whole);
    Ok(vec![row.target(Target::Ratio(RATIO_MAX)).note(
        "by the service's client; plain: both files in one store",
    )])
}

/// Begins a transaction and writes these files in its view.
fn changed(connection: &mut Connection, names: &[&str]) -> Result<TransactionId> {
    let begun = connection.begin(&BeginOptions::default())?;
    for name in names {
        let path = begun.view_path.join(name);
        fs::write(&path, CONTENTS).describe("write", &path)?;
    }
    Ok(begun.id)
}

/// As `atomdir run` with two stores does it.
fn commit_both(
    one: &mut Connection,
    two: &mut Connection,
    [first, second]: [TransactionId; 2],
) -> Result<()> {
    let side = |connection, transaction| Side {
        connection,
        transaction,
    };
    let mut sides = [side(one, first), side(two, second)];
    let committed = commit_together(&mut sides, None, Others::Refuse, &mut |_| {});
    for one in committed.map_err(|failed| failed.error)? {
        one?;
    }
    Ok(())
}
