//! Records of view logs.

mod joint;

use atomdir_disk::{Attachment, Kind};

use super::attributes::{put_attributes, put_owner, take_attributes, take_owner};
use super::{flag, put_xattr, take_xattr};
use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::primitives::{Reader, Result, Writer};
use crate::view::{
    EntryDifference, ObjectPlace, ViewBegin, ViewBody, ViewChange, ViewNode, ViewObject, ViewOwn,
    ViewRecord, ViewStaged, ViewStamp,
};

const BEGIN: u8 = 0;
const NOTE: u8 = 1;
const OBJECT: u8 = 2;
const NODE: u8 = 3;
const GONE: u8 = 4;
const ENTRY: u8 = 5;
const PAGES: u8 = 6;
const DYING: u8 = 7;
const RESTORED: u8 = 8;
const FLUSHED: u8 = 9;
const ENDED: u8 = 10;
const SUCCESSION: u8 = 11;
const BROUGHT: u8 = 12;

const BEGIN_LAZY: u8 = 1;
const BEGIN_EARLY: u8 = 2;
const BEGIN_FIRST_TRY: u8 = 4;
const BEGIN_ATTACHMENT: u8 = 8;
const BEGIN_PAST: u8 = 16;

const PLACE_ROOT: u8 = 0;
const PLACE_ENTRY: u8 = 1;
const PLACE_LIMBO: u8 = 2;

const NODE_OBJECT: u8 = 1;
const NODE_NAME: u8 = 2;
const NODE_REPORTED: u8 = 4;
const NODE_OWN: u8 = 8;

const OWN_STAMP: u8 = 1;
const OWN_STAGED: u8 = 2;
const TOUCHED: u8 = 15;
const DRESS_MAX: u8 = 2;

const BODY_UNCHANGED: u8 = 0;
const BODY_FILE: u8 = 1;
const BODY_FILE_AS_BEFORE: u8 = 2;
const BODY_DIRECTORY: u8 = 3;
const BODY_SYMLINK: u8 = 4;
const BODY_SPECIAL: u8 = 5;

const DIRECTORY_TOUCHED: u8 = 1;
const DIRECTORY_REMOVED: u8 = 2;

const STAGED_PARENT: u8 = 1;
const STAGED_IDENTITY: u8 = 2;

const ENTRY_DIFFERS: u8 = 1;
const ENTRY_BEFORE: u8 = 2;
const ENTRY_NOW: u8 = 4;

impl Record for ViewRecord {
    const KIND: FrameKind = FrameKind::View;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.list(&self.changes, put_change);
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<ViewRecord> {
        let mut reader = Reader::new(payload);
        let changes = reader.list(take_change)?;
        reader.finish()?;
        Ok(ViewRecord { sequence, changes })
    }
}

fn put_change(writer: &mut Writer, change: &ViewChange) {
    match change {
        ViewChange::Begin(begin) => {
            writer.byte(BEGIN);
            put_begin(writer, begin);
        }
        ViewChange::Note(note) => {
            writer.byte(NOTE);
            writer.string(note);
        }
        ViewChange::Object(object) => {
            writer.byte(OBJECT);
            put_object(writer, object);
        }
        ViewChange::Node(node) => {
            writer.byte(NODE);
            put_node(writer, node);
        }
        ViewChange::Gone { node } => {
            writer.byte(GONE);
            writer.number(*node);
        }
        ViewChange::Entry {
            directory,
            name,
            difference,
        } => {
            writer.byte(ENTRY);
            put_entry(writer, *difference);
            writer.number(*directory);
            writer.string(name.as_bytes());
        }
        ViewChange::Pages { node, start, end } => {
            writer.byte(PAGES);
            writer.number(*node);
            put_range(writer, &(*start, *end));
        }
        ViewChange::Dying { object } => {
            writer.byte(DYING);
            writer.number(*object);
        }
        ViewChange::Restored { object } => {
            writer.byte(RESTORED);
            writer.number(*object);
        }
        ViewChange::Succession { before, after } => {
            writer.byte(SUCCESSION);
            writer.number(*before);
            writer.number(*after);
        }
        ViewChange::Brought { object, stamp } => {
            writer.byte(BROUGHT);
            writer.number(*object);
            put_stamp(writer, stamp);
        }
        ViewChange::Flushed => writer.byte(FLUSHED),
        ViewChange::Ended => writer.byte(ENDED),
    }
}

fn take_change(reader: &mut Reader<'_>) -> Result<ViewChange> {
    Ok(match reader.byte()? {
        BEGIN => ViewChange::Begin(Box::new(take_begin(reader)?)),
        NOTE => ViewChange::Note(reader.string()?.to_vec()),
        OBJECT => ViewChange::Object(take_object(reader)?),
        NODE => ViewChange::Node(Box::new(take_node(reader)?)),
        GONE => ViewChange::Gone {
            node: reader.number()?,
        },
        ENTRY => {
            let difference = take_entry(reader)?;
            ViewChange::Entry {
                directory: reader.number()?,
                name: reader.name()?,
                difference,
            }
        }
        PAGES => {
            let node = reader.number()?;
            let (start, end) = take_range(reader)?;
            ViewChange::Pages { node, start, end }
        }
        DYING => ViewChange::Dying {
            object: reader.number()?,
        },
        RESTORED => ViewChange::Restored {
            object: reader.number()?,
        },
        SUCCESSION => ViewChange::Succession {
            before: reader.number()?,
            after: reader.number()?,
        },
        BROUGHT => ViewChange::Brought {
            object: reader.number()?,
            stamp: take_stamp(reader)?,
        },
        FLUSHED => ViewChange::Flushed,
        ENDED => ViewChange::Ended,
        other => return reader.fail(Problem::Tag(other)),
    })
}

fn put_begin(writer: &mut Writer, begin: &ViewBegin) {
    let is = |flag, holds| if holds { flag } else { 0 };
    writer.byte(
        is(BEGIN_LAZY, begin.is_lazy)
            | is(BEGIN_EARLY, begin.has_early_conflicts)
            | flag(&begin.first_try, BEGIN_FIRST_TRY)
            | flag(&begin.attachment, BEGIN_ATTACHMENT)
            | flag(&begin.past, BEGIN_PAST)
            | joint::flag(begin.coordinator.as_ref()),
    );
    writer.number(begin.transaction);
    writer.number(begin.at);
    writer.time(begin.began);
    writer.time(begin.began_change_time);
    writer.number(begin.user.into());
    if let Some(first_try) = begin.first_try {
        writer.number(first_try);
    }
    writer.string(&begin.label);
    if let Some(past) = begin.past {
        writer.number(past);
    }
    if let Some(attachment) = begin.attachment {
        writer.bytes.extend_from_slice(&attachment.boot);
        writer.number(attachment.disk);
    }
    joint::put(writer, begin.coordinator.as_ref());
}

fn take_begin(reader: &mut Reader<'_>) -> Result<ViewBegin> {
    let known = BEGIN_LAZY | BEGIN_EARLY | BEGIN_FIRST_TRY | BEGIN_ATTACHMENT | BEGIN_PAST;
    let flags = reader.flags(known | joint::IN_DOUBT)?;
    let has = |flag| flags & flag != 0;
    Ok(ViewBegin {
        is_lazy: has(BEGIN_LAZY),
        has_early_conflicts: has(BEGIN_EARLY),
        transaction: reader.number()?,
        at: reader.number()?,
        began: reader.time()?,
        began_change_time: reader.time()?,
        user: reader.number_u32()?,
        first_try: has(BEGIN_FIRST_TRY).then(|| reader.number()).transpose()?,
        label: reader.string()?.to_vec(),
        past: has(BEGIN_PAST).then(|| reader.number()).transpose()?,
        attachment: has(BEGIN_ATTACHMENT)
            .then(|| take_attachment(reader))
            .transpose()?,
        coordinator: joint::take(reader, flags)?,
    })
}

fn take_attachment(reader: &mut Reader<'_>) -> Result<Attachment> {
    Ok(Attachment {
        boot: reader.array()?,
        disk: reader.number()?,
    })
}

fn put_object(writer: &mut Writer, object: &ViewObject) {
    writer.number(object.number);
    writer.identity(object.identity);
    writer.kind(object.kind);
    match &object.place {
        ObjectPlace::Root => writer.byte(PLACE_ROOT),
        ObjectPlace::Entry { directory, name } => {
            writer.byte(PLACE_ENTRY);
            writer.number(*directory);
            writer.string(name.as_bytes());
        }
        ObjectPlace::Limbo => writer.byte(PLACE_LIMBO),
    }
}

fn take_object(reader: &mut Reader<'_>) -> Result<ViewObject> {
    Ok(ViewObject {
        number: reader.number()?,
        identity: reader.identity()?,
        kind: reader.kind()?,
        place: match reader.byte()? {
            PLACE_ROOT => ObjectPlace::Root,
            PLACE_ENTRY => ObjectPlace::Entry {
                directory: reader.number()?,
                name: reader.name()?,
            },
            PLACE_LIMBO => ObjectPlace::Limbo,
            other => return reader.fail(Problem::Tag(other)),
        },
    })
}

fn put_node(writer: &mut Writer, node: &ViewNode) {
    writer.byte(
        flag(&node.object, NODE_OBJECT)
            | flag(&node.name, NODE_NAME)
            | flag(&node.reported, NODE_REPORTED)
            | flag(&node.own, NODE_OWN),
    );
    writer.number(node.node);
    writer.kind(node.kind);
    if let Some(object) = node.object {
        writer.number(object);
    }
    writer.number(node.parent);
    if let Some(name) = &node.name {
        writer.string(name.as_bytes());
    }
    if let Some((mode, owner)) = node.reported {
        writer.number(mode.into());
        put_owner(writer, owner);
    }
    if let Some(own) = &node.own {
        put_own(writer, own);
    }
}

fn take_node(reader: &mut Reader<'_>) -> Result<ViewNode> {
    let flags = reader.flags(NODE_OBJECT | NODE_NAME | NODE_REPORTED | NODE_OWN)?;
    let has = |flag| flags & flag != 0;
    let (node, kind) = (reader.number()?, reader.kind()?);
    Ok(ViewNode {
        node,
        kind,
        object: has(NODE_OBJECT).then(|| reader.number()).transpose()?,
        parent: reader.number()?,
        name: has(NODE_NAME).then(|| reader.name()).transpose()?,
        reported: has(NODE_REPORTED)
            .then(|| Ok((reader.number_u32()?, take_owner(reader)?)))
            .transpose()?,
        own: has(NODE_OWN).then(|| take_own(reader, kind)).transpose()?,
    })
}

fn put_own(writer: &mut Writer, own: &ViewOwn) {
    writer.byte(flag(&own.stamp, OWN_STAMP) | flag(&own.staged, OWN_STAGED));
    put_attributes(writer, &own.attributes);
    writer.byte(own.touched);
    if let Some(stamp) = &own.stamp {
        put_stamp(writer, stamp);
    }
    writer.list(&own.xattrs, put_xattr);
    put_body(writer, &own.body);
    if let Some(staged) = &own.staged {
        put_staged(writer, staged);
    }
    writer.byte(own.dress);
}

fn take_own(reader: &mut Reader<'_>, kind: Kind) -> Result<ViewOwn> {
    let flags = reader.flags(OWN_STAMP | OWN_STAGED)?;
    Ok(ViewOwn {
        attributes: take_attributes(reader, kind)?,
        touched: reader.flags(TOUCHED)?,
        stamp: (flags & OWN_STAMP != 0)
            .then(|| take_stamp(reader))
            .transpose()?,
        xattrs: reader.list(take_xattr)?,
        body: take_body(reader)?,
        staged: (flags & OWN_STAGED != 0)
            .then(|| take_staged(reader))
            .transpose()?,
        dress: match reader.byte()? {
            dress @ 0..=DRESS_MAX => dress,
            other => return reader.fail(Problem::Tag(other)),
        },
    })
}

fn put_stamp(writer: &mut Writer, stamp: &ViewStamp) {
    writer.identity(stamp.identity);
    writer.number(stamp.length);
    writer.time(stamp.modified);
    writer.time(stamp.changed);
}

fn take_stamp(reader: &mut Reader<'_>) -> Result<ViewStamp> {
    Ok(ViewStamp {
        identity: reader.identity()?,
        length: reader.number()?,
        modified: reader.time()?,
        changed: reader.time()?,
    })
}

fn put_range(writer: &mut Writer, (start, end): &(u64, u64)) {
    writer.number(*start);
    writer.number(*end);
}

fn take_range(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    let (start, end) = (reader.number()?, reader.number()?);
    match start < end {
        true => Ok((start, end)),
        false => reader.fail(Problem::Extent),
    }
}

fn put_body(writer: &mut Writer, body: &ViewBody) {
    match body {
        ViewBody::Unchanged => writer.byte(BODY_UNCHANGED),
        ViewBody::File { base_limit, pages } => {
            writer.byte(match pages {
                Some(_) => BODY_FILE,
                None => BODY_FILE_AS_BEFORE,
            });
            writer.number(*base_limit);
            if let Some(pages) = pages {
                writer.list(pages, put_range);
            }
        }
        ViewBody::Directory {
            is_touched,
            is_removed,
        } => {
            writer.byte(BODY_DIRECTORY);
            let touched = if *is_touched { DIRECTORY_TOUCHED } else { 0 };
            let removed = if *is_removed { DIRECTORY_REMOVED } else { 0 };
            writer.byte(touched | removed);
        }
        ViewBody::Symlink(target) => {
            writer.byte(BODY_SYMLINK);
            writer.string(target);
        }
        ViewBody::Special => writer.byte(BODY_SPECIAL),
    }
}

fn take_body(reader: &mut Reader<'_>) -> Result<ViewBody> {
    Ok(match reader.byte()? {
        BODY_UNCHANGED => ViewBody::Unchanged,
        BODY_FILE => ViewBody::File {
            base_limit: reader.number()?,
            pages: Some(reader.list(take_range)?),
        },
        BODY_FILE_AS_BEFORE => ViewBody::File {
            base_limit: reader.number()?,
            pages: None,
        },
        BODY_DIRECTORY => {
            let flags = reader.flags(DIRECTORY_TOUCHED | DIRECTORY_REMOVED)?;
            ViewBody::Directory {
                is_touched: flags & DIRECTORY_TOUCHED != 0,
                is_removed: flags & DIRECTORY_REMOVED != 0,
            }
        }
        BODY_SYMLINK => ViewBody::Symlink(reader.string()?.to_vec()),
        BODY_SPECIAL => ViewBody::Special,
        other => return reader.fail(Problem::Tag(other)),
    })
}

fn put_staged(writer: &mut Writer, staged: &ViewStaged) {
    writer.byte(flag(&staged.parent, STAGED_PARENT) | flag(&staged.identity, STAGED_IDENTITY));
    if let Some(parent) = staged.parent {
        writer.number(parent);
    }
    writer.string(staged.name.as_bytes());
    if let Some(identity) = staged.identity {
        writer.identity(identity);
    }
}

fn take_staged(reader: &mut Reader<'_>) -> Result<ViewStaged> {
    let flags = reader.flags(STAGED_PARENT | STAGED_IDENTITY)?;
    let has = |flag| flags & flag != 0;
    Ok(ViewStaged {
        parent: has(STAGED_PARENT).then(|| reader.number()).transpose()?,
        name: reader.name()?,
        identity: has(STAGED_IDENTITY)
            .then(|| reader.identity())
            .transpose()?,
    })
}

fn put_entry(writer: &mut Writer, difference: Option<EntryDifference>) {
    let Some(EntryDifference { before, now }) = difference else {
        return writer.byte(0);
    };
    writer.byte(ENTRY_DIFFERS | flag(&before, ENTRY_BEFORE) | flag(&now, ENTRY_NOW));
    for number in [before, now].into_iter().flatten() {
        writer.number(number);
    }
}

fn take_entry(reader: &mut Reader<'_>) -> Result<Option<EntryDifference>> {
    let flags = reader.flags(ENTRY_DIFFERS | ENTRY_BEFORE | ENTRY_NOW)?;
    let has = |flag| flags & flag != 0;
    if !has(ENTRY_DIFFERS) {
        return match flags {
            0 => Ok(None),
            other => reader.fail(Problem::Tag(other)),
        };
    }
    Ok(Some(EntryDifference {
        before: has(ENTRY_BEFORE).then(|| reader.number()).transpose()?,
        now: has(ENTRY_NOW).then(|| reader.number()).transpose()?,
    }))
}
