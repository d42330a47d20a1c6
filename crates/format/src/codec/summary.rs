//! Summaries of commits.

use super::{NO_COMMIT, changes};
use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::primitives::{Reader, Result, Writer};
use crate::summary::{Summary, SummaryRecord};

impl Record for SummaryRecord {
    const KIND: FrameKind = FrameKind::Summary;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match &self.commit {
            Some(commit) => {
                assert_ne!(commit.transaction, NO_COMMIT, "a commit has a transaction");
                writer.number(commit.transaction);
                writer.time(self.time);
                writer.number(commit.user.into());
                writer.string(&commit.label);
                changes::put(&mut writer, &commit.lines);
                writer.number(commit.left_out);
                writer.list(&commit.takes_back, |writer, one| writer.number(*one));
            }
            None => {
                writer.number(NO_COMMIT);
                writer.time(self.time);
                // No user, label, paths, lines or commits taken back.
                (0..6).for_each(|_| writer.number(0));
            }
        }
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<SummaryRecord> {
        let mut reader = Reader::new(payload);
        let transaction = reader.number()?;
        let time = reader.time()?;
        let commit = Summary {
            transaction,
            user: reader.number_u32()?,
            label: reader.string()?.to_vec(),
            lines: changes::take(&mut reader)?,
            left_out: reader.number()?,
            takes_back: reader.list(Reader::number)?,
        };
        if commit.left_out > 0 && !commit.lines.is_empty() {
            return reader.fail(Problem::NotEmpty);
        }
        let is_empty = commit.user == 0
            && commit.label.is_empty()
            && commit.lines.is_empty()
            && commit.left_out == 0
            && commit.takes_back.is_empty();
        let commit = match transaction {
            NO_COMMIT if is_empty => None,
            NO_COMMIT => return reader.fail(Problem::NotEmpty),
            _ => Some(commit),
        };
        reader.finish()?;
        Ok(SummaryRecord {
            sequence,
            time,
            commit,
        })
    }
}
