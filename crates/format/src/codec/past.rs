//! What a commit replaces: the last part of a commit record, and records of past commits.

use atomdir_disk::{Attributes, Owner, Times};

use super::{put_log_record, put_run, put_xattr, take_log_record, take_run, take_xattr};
use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::past::{PastRecord, SettledBy};
use crate::primitives::{Reader, Result, Writer};
use crate::record::{Before, Former, FormerPages, Succession};

const PAGES_LIMBO: u8 = 0;
const PAGES_CARRIED: u8 = 1;

/// The last byte, if there is one: recovery has taken the settled time.
const SETTLED_LATE: u8 = 1;
/// The same of a store that was copied and adopted since.
const ADOPTED: u8 = 2;
/// The commit had to make room for others.
const GIVEN_UP: u8 = 3;

impl Record for PastRecord {
    const KIND: FrameKind = FrameKind::Past;

    fn sequence(&self) -> u64 {
        self.record.sequence()
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.time(self.settled);
        put_log_record(&mut writer, &self.record);
        assert!(
            !self.is_given_up || self.record.is_own_cancellation(),
            "nothing is left of a commit that was given up"
        );
        match (self.settled_by, self.is_given_up) {
            (_, true) => writer.byte(GIVEN_UP),
            (SettledBy::Commit, false) => {}
            (SettledBy::Recovery, false) => writer.byte(SETTLED_LATE),
            (SettledBy::Adoption, false) => writer.byte(ADOPTED),
        }
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<PastRecord> {
        let mut reader = Reader::new(payload);
        let settled = reader.time()?;
        let record = take_log_record(&mut reader, sequence)?;
        let (settled_by, is_given_up) = match reader.is_at_end() {
            true => (SettledBy::Commit, false),
            false => match reader.byte()? {
                SETTLED_LATE => (SettledBy::Recovery, false),
                ADOPTED => (SettledBy::Adoption, false),
                GIVEN_UP if record.is_own_cancellation() => (SettledBy::Commit, true),
                other => return reader.fail(Problem::Tag(other)),
            },
        };
        let record = PastRecord {
            settled,
            settled_by,
            is_given_up,
            record,
        };
        reader.finish()?;
        Ok(record)
    }
}

pub(super) fn put_before(writer: &mut Writer, before: &Before) {
    writer.number(before.limbo_bytes);
    writer.list(&before.objects, put_former);
    writer.list(&before.successions, |writer, succession| {
        writer.identity(succession.before);
        writer.number(succession.after.into());
    });
    writer.list(&before.takes_back, |writer, commit| writer.number(*commit));
    writer.byte(before.leaves_traces.into());
}

fn put_former(writer: &mut Writer, former: &Former) {
    let Attributes { mode, owner, times } = former.attributes;
    writer.number(former.object.into());
    for number in [mode, owner.user, owner.group] {
        writer.number(number.into());
    }
    for time in [times.accessed, times.modified, former.changed] {
        writer.time(time);
    }
    writer.number(former.length);
    writer.list(&former.xattrs, put_xattr);
    writer.list(&former.extents, |writer, extent| writer.extent(*extent));
    match &former.pages {
        FormerPages::Limbo => writer.byte(PAGES_LIMBO),
        FormerPages::Carried { runs } => {
            writer.byte(PAGES_CARRIED);
            writer.list(runs, put_run);
        }
    }
}

pub(super) fn take_before(reader: &mut Reader<'_>, objects: usize) -> Result<Before> {
    Ok(Before {
        limbo_bytes: reader.number()?,
        objects: reader.list(|reader| take_former(reader, objects))?,
        successions: reader.list(|reader| {
            Ok(Succession {
                before: reader.identity()?,
                after: reader.index(objects)?,
            })
        })?,
        takes_back: reader.list(Reader::number)?,
        leaves_traces: match reader.byte()? {
            0 => false,
            1 => true,
            other => return reader.fail(Problem::Tag(other)),
        },
    })
}

fn take_former(reader: &mut Reader<'_>, objects: usize) -> Result<Former> {
    Ok(Former {
        object: reader.index(objects)?,
        attributes: Attributes {
            mode: reader.number_u32()?,
            owner: Owner {
                user: reader.number_u32()?,
                group: reader.number_u32()?,
            },
            times: Times {
                accessed: reader.time()?,
                modified: reader.time()?,
            },
        },
        changed: reader.time()?,
        length: reader.number()?,
        xattrs: reader.list(take_xattr)?,
        extents: reader.list(Reader::extent)?,
        pages: match reader.byte()? {
            PAGES_LIMBO => FormerPages::Limbo,
            PAGES_CARRIED => FormerPages::Carried {
                runs: reader.list(take_run)?,
            },
            other => return reader.fail(Problem::Tag(other)),
        },
    })
}
