//! Lets the user choose which changes to land: each change, and each hunk of a text.
//!
//! A text of which only some hunks are to land is overwritten in the view while they are
//! committed, and is restored afterwards, so that the transaction keeps the other hunks. Until
//! then a copy of the whole text lies beside it in the view, in case this process is killed.

mod choice;
mod whole;

pub use choice::{Chosen, choose};

use crate::attempt::{self, PartDone};
use crate::changes::overwrite;
use crate::context::{Connected, Context};
use crate::enter::HeldSignals;
use crate::error::Error;
use crate::picking::choice::PartOfText;
use crate::picking::whole::Saved;
use atomdir::client::{Others, Portion, Transaction};

/// Lands the chosen changes, with a label of their own if there is one. The view becomes writable if
/// it was not.
pub fn land(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    (chosen, label): (Chosen, Option<Vec<u8>>),
    others: Others,
) -> Result<PartDone, Error> {
    let Chosen { paths, texts } = chosen;
    let connection = &mut connected.connection;
    let id = transaction.id;
    // Between the two times that the texts are overwritten, the view has only the chosen hunks.
    let _held = HeldSignals::hold().map_err(Error::Signals)?;
    if !texts.is_empty() {
        connection.keep(id)?;
    }
    let saved = save_all(transaction, &texts)?;
    let reduced = reduce_all(transaction, &texts);
    let portion = Portion::Part {
        paths: paths.clone(),
        label,
    };
    let part =
        reduced.and_then(|()| attempt::commit_portion(context, connection, id, &portion, others));
    for (text, saved) in texts.iter().zip(saved) {
        if let Err(errno) = overwrite(transaction, &text.path, &text.chosen, &text.whole) {
            return Err(Error::TextNotRestored {
                path: text.path.clone(),
                saved: saved.path,
                errno,
            });
        }
        saved.remove(transaction)?;
    }
    let part = part?;
    let named = |path: &[u8]| paths.iter().any(|one| one == path);
    let others = part.changes.iter().filter(|line| !named(&line.path));
    Ok(PartDone {
        transaction: id,
        others: others.cloned().collect(),
        part,
    })
}

/// Saves all texts, or none.
fn save_all(transaction: &Transaction, texts: &[PartOfText]) -> Result<Vec<Saved>, Error> {
    let mut saved = Vec::new();
    for text in texts {
        match Saved::save(transaction, text) {
            Ok(one) => saved.push(one),
            Err(error) => {
                for one in saved {
                    one.remove(transaction)?;
                }
                return Err(error);
            }
        }
    }
    Ok(saved)
}

/// Leaves only the chosen hunks in the texts.
fn reduce_all(transaction: &Transaction, texts: &[PartOfText]) -> Result<(), Error> {
    for text in texts {
        let reduced = overwrite(transaction, &text.path, &text.whole, &text.chosen);
        reduced.map_err(|errno| Error::Overwrite {
            path: text.path.clone(),
            errno,
        })?;
    }
    Ok(())
}
