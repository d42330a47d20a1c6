//! Summaries of commits.

use atomdir_types::{Change, ChangeLine};

use super::{NO_COMMIT, flag};
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
                writer.list(&commit.lines, put_change_line);
            }
            None => {
                writer.number(NO_COMMIT);
                writer.time(self.time);
                // No user, label or lines.
                (0..3).for_each(|_| writer.number(0));
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
            lines: reader.list(take_change_line)?,
        };
        let is_empty = commit.user == 0 && commit.label.is_empty() && commit.lines.is_empty();
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

/// Writes the letter that `diff` prints. Its high bit says that the line also
/// has the object's old path.
pub(super) fn put_change_line(writer: &mut Writer, line: &ChangeLine) {
    writer.byte(line.change.letter() as u8 | flag(&line.from, 0x80));
    writer.string(&line.path);
    if let Some(from) = &line.from {
        writer.string(from);
    }
}

pub(super) fn take_change_line(reader: &mut Reader<'_>) -> Result<ChangeLine> {
    let tag = reader.byte()?;
    let change = match tag & 0x7f {
        b'A' => Change::Added,
        b'M' => Change::Modified,
        b'D' => Change::Deleted,
        b'R' => Change::Renamed,
        b'T' => Change::TypeChanged,
        _ => return reader.fail(Problem::Tag(tag)),
    };
    let path = reader.string()?.to_vec();
    let from = (tag & 0x80 != 0).then(|| reader.string()).transpose()?;
    Ok(ChangeLine {
        change,
        path,
        from: from.map(<[u8]>::to_vec),
    })
}
