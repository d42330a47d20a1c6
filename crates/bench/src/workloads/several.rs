//! Transactions of two stores that are committed together, beside one transaction of one store with the
//! same files.

use std::fs;

use atomdir::client::{BeginOptions, Connection, Others, Side, Transaction, commit_together, link};

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
                    let begun = begin(&mut only)?;
                    write(&begun, &["a", "b"])?;
                    only.commit(begun.id, &mut |_| {})?;
                    Ok(())
                }
                _ => {
                    let begun = [begin(&mut one)?, begin(&mut two)?];
                    let mut sides = [side_of(&mut one, &begun[0]), side_of(&mut two, &begun[1])];
                    link(&mut sides)?;
                    write(&begun[0], &["a"])?;
                    write(&begun[1], &["b"])?;
                    commit_both(&mut sides)
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

fn begin(connection: &mut Connection) -> Result<Transaction> {
    Ok(connection.begin(&BeginOptions::default())?)
}

/// Writes these files in its view.
fn write(begun: &Transaction, names: &[&str]) -> Result<()> {
    for name in names {
        let path = begun.view_path.join(name);
        fs::write(&path, CONTENTS).describe("write", &path)?;
    }
    Ok(())
}

fn side_of<'a>(connection: &'a mut Connection, begun: &Transaction) -> Side<'a> {
    let transaction = begun.id;
    Side {
        connection,
        transaction,
    }
}

/// As `atomdir run` with two stores does it.
fn commit_both(sides: &mut [Side<'_>]) -> Result<()> {
    let committed = commit_together(sides, None, Others::Refuse, &mut |_| {});
    for one in committed.map_err(|failed| failed.error)? {
        one?;
    }
    Ok(())
}
