//! The note of privileges. It has the form of a commit record that has nothing but objects, each
//! a file in limbo, and one update for each.

use atomdir_disk::{Kind, Timestamp};

use super::{put_object, put_update, take_object, take_update};
use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::primitives::{Reader, Result, Writer};
use crate::privileges::{FilePrivileges, PrivilegesNote};
use crate::record::{Locator, ObjectReference, Update};

impl Record for PrivilegesNote {
    const KIND: FrameKind = FrameKind::Commit;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        // Transaction, stage, time, user, groups, label, directories.
        (0..2).for_each(|_| writer.number(0));
        writer.time(Timestamp::default());
        (0..4).for_each(|_| writer.number(0));
        writer.list(&self.files, |writer, one| put_object(writer, &object(one)));
        // Entries.
        writer.number(0);
        let updates = (0..).zip(&self.files).map(|(object, one)| Update {
            object,
            attributes: one.attributes,
            owner: Some(one.owner),
            xattrs: one.xattrs.clone(),
            content: None,
        });
        writer.list(&updates.collect::<Vec<_>>(), put_update);
        // Made, the summary's paths and lines.
        (0..3).for_each(|_| writer.number(0));
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<PrivilegesNote> {
        let mut reader = Reader::new(payload);
        take_zeros(&mut reader, 2)?;
        if reader.time()? != Timestamp::default() {
            return reader.fail(Problem::NotEmpty);
        }
        take_zeros(&mut reader, 4)?;
        let objects = reader.list(|reader| take_object(reader, 0))?;
        take_zeros(&mut reader, 1)?;
        let updates = reader.list(|reader| take_update(reader, objects.len()))?;
        take_zeros(&mut reader, 3)?;
        reader.finish()?;
        let files = (0..).zip(objects.iter().zip(updates.iter()));
        let files = files.map(|(number, (reference, update))| {
            let one = FilePrivileges {
                file: reference.identity,
                attributes: update.attributes,
                owner: update.owner?,
                xattrs: update.xattrs.clone(),
            };
            let is_file = *reference == object(&one);
            let is_whole = is_file && update.object == number && update.content.is_none();
            is_whole.then_some(one)
        });
        let files: Option<Vec<FilePrivileges>> = files.collect();
        match files {
            Some(files) if objects.len() == updates.len() => Ok(PrivilegesNote { sequence, files }),
            _ => reader.fail(Problem::Index),
        }
    }
}

fn object(one: &FilePrivileges) -> ObjectReference {
    ObjectReference {
        identity: one.file,
        kind: Kind::File,
        locator: Locator::Limbo,
    }
}

fn take_zeros(reader: &mut Reader<'_>, count: u32) -> Result<()> {
    for _ in 0..count {
        let number = reader.number()?;
        if number != 0 {
            return reader.fail(Problem::NotEmpty);
        }
    }
    Ok(())
}
