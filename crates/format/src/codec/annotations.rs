//! Annotations of commits.

use atomdir_types::{EarlyReason, ForgottenEarly, Sequence};

use crate::Problem;
use crate::annotations::{Annotations, CommitAnnotation, SEQUENCE, UnconfirmedCommit};
use crate::frame::{FrameKind, Record};
use crate::primitives::{Reader, Result, Writer};

const PINNED: u8 = 1;
const LABEL: u8 = 2;

const REASONS: [EarlyReason; 4] = [
    EarlyReason::Space,
    EarlyReason::FreeSpace,
    EarlyReason::TooMany,
    EarlyReason::Asked,
];

impl Record for Annotations {
    const KIND: FrameKind = FrameKind::Annotations;

    fn sequence(&self) -> u64 {
        SEQUENCE
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.list(&self.commits, put_commit);
        writer.list(&self.unconfirmed, put_unconfirmed);
        let early: Vec<ForgottenEarly> = self.early.into_iter().collect();
        writer.list(&early, put_early);
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<Annotations> {
        let mut reader = Reader::new(payload);
        if sequence != SEQUENCE {
            return reader.fail(Problem::Number);
        }
        let commits = reader.list(take_commit)?;
        let unconfirmed = reader.list(take_unconfirmed)?;
        let early = reader.list(take_early)?;
        let ascends = |sequences: Vec<u64>| sequences.is_sorted_by(|one, next| one < next);
        let is_in_order = ascends(commits.iter().map(|one| one.sequence).collect())
            && ascends(unconfirmed.iter().map(|one| one.sequence).collect());
        if !is_in_order || early.len() > 1 {
            return reader.fail(Problem::Index);
        }
        reader.finish()?;
        Ok(Annotations {
            commits,
            unconfirmed,
            early: early.into_iter().next(),
        })
    }
}

fn put_commit(writer: &mut Writer, one: &CommitAnnotation) {
    writer.number(one.sequence);
    let label = one.label.as_ref().map_or(0, |_| LABEL);
    writer.byte(label | if one.is_pinned { PINNED } else { 0 });
    if let Some(label) = &one.label {
        writer.string(label);
    }
}

fn take_commit(reader: &mut Reader<'_>) -> Result<CommitAnnotation> {
    let sequence = reader.number()?;
    let flags = reader.flags(PINNED | LABEL)?;
    let label = match flags & LABEL {
        0 => None,
        _ => Some(reader.string()?.to_vec()),
    };
    Ok(CommitAnnotation {
        sequence,
        is_pinned: flags & PINNED != 0,
        label,
    })
}

fn put_unconfirmed(writer: &mut Writer, one: &UnconfirmedCommit) {
    writer.number(one.sequence);
    writer.number(one.transaction);
    writer.time(one.due);
    writer.number(one.wait_ms);
    let refused: Vec<u64> = one.refused.into_iter().collect();
    writer.list(&refused, |writer, places| writer.number(*places));
}

fn take_unconfirmed(reader: &mut Reader<'_>) -> Result<UnconfirmedCommit> {
    let (sequence, transaction) = (reader.number()?, reader.number()?);
    let (due, wait_ms) = (reader.time()?, reader.number()?);
    let refused = reader.list(Reader::number)?;
    if refused.len() > 1 {
        return reader.fail(Problem::Index);
    }
    Ok(UnconfirmedCommit {
        sequence,
        transaction,
        due,
        wait_ms,
        refused: refused.first().copied(),
    })
}

fn put_early(writer: &mut Writer, early: &ForgottenEarly) {
    writer.time(early.time);
    writer.number(early.commits);
    writer.number(early.newest.0);
    let why = REASONS.iter().position(|why| *why == early.why);
    writer.byte(why.map_or(0, |place| place as u8));
}

fn take_early(reader: &mut Reader<'_>) -> Result<ForgottenEarly> {
    let (time, commits) = (reader.time()?, reader.number()?);
    let newest = Sequence(reader.number()?);
    let why = reader.byte()?;
    let Some(why) = REASONS.get(usize::from(why)).copied() else {
        return reader.fail(Problem::Tag(why));
    };
    Ok(ForgottenEarly {
        time,
        commits,
        newest,
        why,
    })
}
