//! The outcome of a commit of a part of a transaction's changes.

use super::{Finished, Outcome};
use crate::changes::{ChangeList, PartJson, show_others};
use crate::output::{Painter, Show, counted};
use atomdir::TransactionId;
use atomdir::client::{ChangeLine, CommittedPortion};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// A part that has landed.
pub struct PartDone {
    pub transaction: TransactionId,
    pub part: CommittedPortion,
    /// Those of its changes that were not named.
    pub others: Vec<ChangeLine>,
}

impl Show for PartDone {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let transaction = self.transaction;
        let changes = counted(self.part.committed.changes, "change");
        match self.part.committed.sequence {
            Some(sequence) => {
                writeln!(
                    painter,
                    "commit {sequence}: {changes}; transaction {transaction} stays open"
                )?;
            }
            None => writeln!(
                painter,
                "nothing had changed; transaction {transaction} stays open"
            )?,
        }
        show_others(&self.others, painter)
    }
}

impl Serialize for PartDone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PartDoneJson<'a> {
            #[serde(flatten)]
            finished: Finished<'a>,
            open: bool,
            #[serde(flatten)]
            part: PartJson<'a>,
        }
        PartDoneJson {
            finished: Finished {
                transaction: Some(self.transaction),
                result: Ok(Outcome::Committed(self.part.committed.clone())),
                exit_code: 0,
            },
            open: true,
            part: PartJson {
                changes: ChangeList::new(&self.part.changes),
                together: ChangeList::new(&self.others),
            },
        }
        .serialize(serializer)
    }
}
