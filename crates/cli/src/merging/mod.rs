//! Merges what a transaction and others have changed in the same texts: the library merges them by
//! lines, and where it cannot, the user may, with markers or a tool.
//!
//! Invariants
//! 1. The view is written only once all wanted conflicts have been merged, or if the user has
//!    asked for markers. If writing fails, the view is rolled back to what it was.
//! 2. A merge takes the transaction's side of a conflict as it was listed. If others change the
//!    file after the list was made, so perhaps after we have read it, the commit is refused.

mod tool;

use crate::changes::{overwrite, three_way};
use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir::client::three_way::{ThreeWay, WhyNotMerged};
use atomdir::client::{Conflict, Numbers, Sides, Transaction};
use atomdir::{Isolation, TransactionId};
use std::os::unix::ffi::OsStrExt;

/// What to do with a text that does not merge by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    Refuse,
    /// Write both sides into the view, between markers.
    Markers,
    /// Run the user's merge tool.
    Tool,
}

/// A conflict that was not merged.
#[derive(Debug, Clone)]
pub struct NotMerged {
    pub number: u64,
    pub path: Vec<u8>,
    pub reason: String,
    pub next: Next,
}

/// The ways out of a conflict that was not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Edit the text in the view, which has markers now.
    Edit,
    /// Merge by hand, or take a side.
    ByHand,
    /// Take either side.
    TakeSide,
    /// Take the side of the others: it is the only one.
    TakeTheirs,
    /// Drop the changes, and run the programs again.
    Abort,
}

/// Merges these conflicts in the view, and adds them to those in which the commit takes the
/// transaction's side.
pub fn merge(
    context: &Context,
    connected: &mut Connected,
    transaction: TransactionId,
    (wanted, otherwise): (&Numbers, Otherwise),
    sides: Sides,
) -> Result<Sides, Error> {
    let conflicts = list(connected, transaction, &sides)?;
    let numbers = resolve(wanted, &sides, conflicts.len() as u64)?;
    let status = connected.connection.status(transaction)?;
    let is_serializable = status.isolation == Isolation::Serializable;
    let view = connected.connection.open_view(transaction)?;
    let mut merged = Vec::new();
    let mut not_merged = Vec::new();
    let mut marked = Vec::new();
    for &number in &numbers {
        let conflict = &conflicts[number as usize - 1];
        let refuse = |reason: &str, next: Next| NotMerged {
            number,
            path: conflict.path.clone(),
            reason: reason.to_owned(),
            next,
        };
        let texts = match is_serializable {
            true => Err(WhyNotMerged::Serializable),
            false => three_way::look_up(connected, &view, conflict)?,
        };
        let texts = match texts {
            Ok(texts) => texts,
            Err(reason) => {
                let next = match reason {
                    WhyNotMerged::Serializable => Next::Abort,
                    _ if conflict.what.has_side_of_transaction() => Next::TakeSide,
                    _ => Next::TakeTheirs,
                };
                not_merged.push(refuse(&reason.to_string(), next));
                continue;
            }
        };
        match (texts.merged(), otherwise) {
            (Ok(text), _) => merged.push((texts, text)),
            (Err(text), Otherwise::Markers) => {
                marked.push((texts, text));
                not_merged.push(refuse("it has markers in the view now", Next::Edit));
            }
            (Err(text), Otherwise::Tool) => match tool::run(context, &texts, &text)? {
                Ok(text) => merged.push((texts, text)),
                Err(reason) => not_merged.push(refuse(&reason, Next::ByHand)),
            },
            (Err(marked), Otherwise::Refuse) => {
                let reason = texts.why_marked(marked);
                not_merged.push(refuse(&reason.to_string(), Next::ByHand));
            }
        }
    }
    let is_refused = !not_merged.is_empty();
    write(connected, &view, if is_refused { &marked } else { &merged })?;
    if is_refused {
        return Err(Error::NotMerged {
            transaction,
            not_merged,
        });
    }
    let mine = match sides.mine {
        Numbers::These(mine) => Numbers::These([mine, numbers].concat()),
        // These are all that no other option names.
        Numbers::Others => Numbers::Others,
    };
    Ok(Sides { mine, ..sides })
}

/// The conflicts by their numbers. If the user names some, the numbers are those of the list
/// that was made last.
fn list(
    connected: &mut Connected,
    transaction: TransactionId,
    sides: &Sides,
) -> Result<Vec<Conflict>, Error> {
    let connection = &mut connected.connection;
    let names_none = |numbers: &Numbers| matches!(numbers, Numbers::These(none) if none.is_empty());
    if names_none(&sides.mine) && names_none(&sides.theirs) {
        return Ok(connection.list_conflicts(transaction)?);
    }
    Ok(connection.listed_conflicts(transaction)?)
}

fn these(numbers: &Numbers) -> &[u64] {
    match numbers {
        Numbers::These(numbers) => numbers,
        Numbers::Others => &[],
    }
}

/// The conflicts to merge; `all` are those that no other option names.
fn resolve(wanted: &Numbers, sides: &Sides, count: u64) -> Result<Vec<u64>, Error> {
    let named = [these(&sides.mine), these(&sides.theirs)].concat();
    let numbers: Vec<u64> = match wanted {
        Numbers::Others => (1..=count).filter(|one| !named.contains(one)).collect(),
        Numbers::These(numbers) => numbers.clone(),
    };
    for number in &numbers {
        if named.contains(number) {
            return Err(Error::usage(format!(
                "conflict {number} is to be merged, and a side of it is to be taken"
            )));
        }
        if !(1..=count).contains(number) {
            return Err(Error::usage(format!(
                "no conflict {number}: `atomdir conflicts` listed {count}"
            )));
        }
    }
    Ok(numbers)
}

fn write(
    connected: &mut Connected,
    view: &Transaction,
    texts: &[(ThreeWay, Vec<u8>)],
) -> Result<(), Error> {
    const SAVEPOINT: &[u8] = b"before the merge";
    if texts.is_empty() {
        return Ok(());
    }
    connected.connection.set_savepoint(view.id, SAVEPOINT)?;
    for (ThreeWay { path, mine, .. }, text) in texts {
        if let Err(errno) = overwrite(view, path.as_os_str().as_bytes(), mine, text) {
            connected.connection.roll_back(view.id, SAVEPOINT)?;
            return Err(Error::View {
                path: path.as_os_str().as_bytes().to_vec(),
                errno,
            });
        }
    }
    Ok(())
}
