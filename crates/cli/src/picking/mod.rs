//! Lets the user choose which changes to land: each change, and each hunk of a text.
//!
//! A text of which only some hunks are to land is overwritten in the view while they are
//! committed, and is restored afterwards, so that the transaction keeps the other hunks.

mod choice;

pub use choice::{Chosen, choose};

use crate::attempt::{self, PartDone};
use crate::changes::overwrite;
use crate::context::{Connected, Context};
use crate::enter::HeldSignals;
use crate::error::Error;
use atomdir::client::{Others, Transaction};

/// Lands what was chosen. The view becomes writable if it was not.
pub fn land(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    chosen: Chosen,
    others: Others,
) -> Result<PartDone, Error> {
    let Chosen { paths, texts } = chosen;
    let connection = &mut connected.connection;
    let id = transaction.id;
    let failed = |path: &[u8], errno| Error::View {
        path: path.to_owned(),
        errno,
    };
    // Between the two times that the texts are overwritten, the view has only the chosen hunks.
    let _held = HeldSignals::hold().map_err(Error::Signals)?;
    if !texts.is_empty() {
        connection.keep(id)?;
    }
    let mut part = Ok(());
    let mut overwritten = Vec::new();
    for text in &texts {
        let done = overwrite(transaction, &text.path, &text.whole, &text.chosen);
        overwritten.push(text);
        if let Err(errno) = done {
            part = Err(failed(&text.path, errno));
            break;
        }
    }
    let part = part.and_then(|()| attempt::commit_part(context, connection, id, &paths, others));
    for text in overwritten {
        overwrite(transaction, &text.path, &text.chosen, &text.whole)
            .map_err(|errno| failed(&text.path, errno))?;
    }
    let part = part?;
    let named = |path: &[u8]| paths.iter().any(|one| one == path);
    let others = part.landed.iter().filter(|line| !named(&line.path));
    Ok(PartDone {
        transaction: id,
        others: others.cloned().collect(),
        part,
    })
}
