//! Records of notices.

use atomdir_types::EndedHow;

use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::notice::{EndedNotice, Notice, NoticeRecord, OpenNotice, Reported};
use crate::primitives::{Reader, Result, Writer};

const OPEN: u8 = 0;
const PARTS: u8 = 1;
const DONE: u8 = 2;
const ENDED: u8 = 3;
const REPORTED: u8 = 4;

const ABORTED: u8 = 0;
const AGE: u8 = 1;
const STOPPED_BY_USER: u8 = 2;
const STOPPED_BY_SIGNAL: u8 = 3;
const DIED: u8 = 4;

const REPORTED_USER: u8 = 1;
const REPORTED_ADMINISTRATOR: u8 = 2;
const HAS_CHANGES: u8 = 4;

impl Record for NoticeRecord {
    const KIND: FrameKind = FrameKind::Notice;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match &self.notice {
            Notice::Open(open) => {
                writer.byte(OPEN);
                put_open(&mut writer, open);
            }
            Notice::Parts { transaction, up_to } => {
                writer.byte(PARTS);
                writer.number(*transaction);
                writer.number(*up_to);
            }
            Notice::Done { transaction } => {
                writer.byte(DONE);
                writer.number(*transaction);
            }
            Notice::Ended(ended) => {
                writer.byte(ENDED);
                put_ended(&mut writer, ended);
            }
            Notice::Reported {
                transaction,
                reported,
            } => {
                writer.byte(REPORTED);
                writer.number(*transaction);
                writer.byte(flags(*reported));
            }
        }
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<NoticeRecord> {
        let mut reader = Reader::new(payload);
        let notice = match reader.byte()? {
            OPEN => Notice::Open(take_open(&mut reader)?),
            PARTS => Notice::Parts {
                transaction: reader.number()?,
                up_to: reader.number()?,
            },
            DONE => Notice::Done {
                transaction: reader.number()?,
            },
            ENDED => Notice::Ended(take_ended(&mut reader)?),
            REPORTED => Notice::Reported {
                transaction: reader.number()?,
                reported: reported(reader.flags(REPORTED_USER | REPORTED_ADMINISTRATOR)?),
            },
            other => return reader.fail(Problem::Tag(other)),
        };
        reader.finish()?;
        Ok(NoticeRecord { sequence, notice })
    }
}

fn put_open(writer: &mut Writer, open: &OpenNotice) {
    writer.number(open.transaction);
    writer.number(open.user.into());
    writer.time(open.began);
    writer.string(&open.label);
}

fn take_open(reader: &mut Reader<'_>) -> Result<OpenNotice> {
    Ok(OpenNotice {
        transaction: reader.number()?,
        user: reader.number_u32()?,
        began: reader.time()?,
        label: reader.string()?.to_vec(),
    })
}

fn put_ended(writer: &mut Writer, ended: &EndedNotice) {
    put_open(writer, &ended.open);
    writer.time(ended.ended);
    match ended.how {
        EndedHow::Aborted { by } => {
            writer.byte(ABORTED);
            writer.number(by.into());
        }
        EndedHow::Age { age_ms } => {
            writer.byte(AGE);
            writer.number(age_ms);
        }
        EndedHow::Stopped { by: Some(by) } => {
            writer.byte(STOPPED_BY_USER);
            writer.number(by.into());
        }
        EndedHow::Stopped { by: None } => writer.byte(STOPPED_BY_SIGNAL),
        EndedHow::Died => writer.byte(DIED),
    }
    let has_changes = if ended.changes.is_some() {
        HAS_CHANGES
    } else {
        0
    };
    writer.byte(flags(ended.reported) | has_changes);
    if let Some(changes) = ended.changes {
        writer.number(changes);
    }
}

fn take_ended(reader: &mut Reader<'_>) -> Result<EndedNotice> {
    let open = take_open(reader)?;
    let ended = reader.time()?;
    let how = match reader.byte()? {
        ABORTED => EndedHow::Aborted {
            by: reader.number_u32()?,
        },
        AGE => EndedHow::Age {
            age_ms: reader.number()?,
        },
        STOPPED_BY_USER => EndedHow::Stopped {
            by: Some(reader.number_u32()?),
        },
        STOPPED_BY_SIGNAL => EndedHow::Stopped { by: None },
        DIED => EndedHow::Died,
        other => return reader.fail(Problem::Tag(other)),
    };
    let flags = reader.flags(REPORTED_USER | REPORTED_ADMINISTRATOR | HAS_CHANGES)?;
    let changes = match flags & HAS_CHANGES {
        0 => None,
        _ => Some(reader.number()?),
    };
    Ok(EndedNotice {
        open,
        ended,
        how,
        changes,
        reported: reported(flags),
    })
}

fn flags(reported: Reported) -> u8 {
    let user = if reported.user { REPORTED_USER } else { 0 };
    let administrator = if reported.administrator {
        REPORTED_ADMINISTRATOR
    } else {
        0
    };
    user | administrator
}

fn reported(flags: u8) -> Reported {
    Reported {
        user: flags & REPORTED_USER != 0,
        administrator: flags & REPORTED_ADMINISTRATOR != 0,
    }
}
