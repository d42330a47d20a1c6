//! The payloads of frames: commit records, summaries, view logs and notices, as docs/format.md
//! draws them. Whatever is encoded decodes to the same value. All other bytes
//! are refused, without a panic and without a large allocation.

mod annotations;
mod attributes;
mod changes;
mod notice;
mod past;
mod privileges;
mod summary;
mod view;

use atomdir_disk::{Kind, NewNode, Owner};

use crate::Problem;
use crate::frame::{FrameKind, Record};
use crate::primitives::{DIRECTORY, Reader, Result, Writer};
use crate::record::{
    AttributesChange, Cancellation, CommitRecord, ContentChange, DirectoryReference, EntryChange,
    Locator, LogRecord, Made, ObjectReference, Run, Source, Update,
};

const LOCATOR_ROOT: u8 = 0;
const LOCATOR_ENTRY: u8 = 1;
const LOCATOR_STAGED: u8 = 2;
const LOCATOR_LIMBO: u8 = 3;

const COMMIT_GROUPS: u8 = 1;
const COMMIT_OUTSIDE: u8 = 2;
const ENTRY_BEFORE: u8 = 1;
const ENTRY_AFTER: u8 = 2;
const ENTRY_BURIES: u8 = 4;

const ATTRIBUTE_MODE: u8 = 1;
const ATTRIBUTE_USER: u8 = 2;
const ATTRIBUTE_GROUP: u8 = 4;
const ATTRIBUTE_ACCESSED: u8 = 8;
const ATTRIBUTE_MODIFIED: u8 = 16;
const UPDATE_CONTENT: u8 = 32;
const UPDATE_OWNER: u8 = 64;
const UPDATE_FLAGS: u8 = 127;

const CONTENT_CUT: u8 = 1;
const CONTENT_WHOLE: u8 = 2;
const CONTENT_FOUND: u8 = 4;

const SOURCE_STAGED: u8 = 0;
const SOURCE_CARRIED: u8 = 1;

/// In the place of the transaction: the record belongs to no commit. No transaction has this
/// number.
const NO_COMMIT: u64 = u64::MAX;

impl Record for LogRecord {
    const KIND: FrameKind = FrameKind::Commit;

    fn sequence(&self) -> u64 {
        LogRecord::sequence(self)
    }

    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        put_log_record(&mut writer, self);
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<LogRecord> {
        let mut reader = Reader::new(payload);
        let record = take_log_record(&mut reader, sequence)?;
        reader.finish()?;
        Ok(record)
    }
}

/// Where a record can only be a commit, a cancellation is refused.
impl Record for CommitRecord {
    const KIND: FrameKind = LogRecord::KIND;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    /// # Panics
    /// If an index points outside its list, or to a later directory: a record
    /// that could not be read back must not get into the log.
    fn encode_payload(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        put_commit(&mut writer, self);
        writer.bytes
    }

    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<CommitRecord> {
        let mut reader = Reader::new(payload);
        let transaction = reader.number()?;
        if transaction == NO_COMMIT {
            return reader.fail(Problem::NotEmpty);
        }
        let record = take_commit(&mut reader, sequence, transaction)?;
        reader.finish()?;
        Ok(record)
    }
}

fn put_log_record(writer: &mut Writer, record: &LogRecord) {
    match record {
        LogRecord::Commit(commit) => put_commit(writer, commit),
        LogRecord::Cancellation(cancellation) => {
            writer.number(NO_COMMIT);
            writer.number(cancellation.cancelled);
            writer.time(cancellation.time);
        }
    }
}

fn take_log_record(reader: &mut Reader<'_>, sequence: u64) -> Result<LogRecord> {
    let transaction = reader.number()?;
    if transaction != NO_COMMIT {
        return take_commit(reader, sequence, transaction).map(LogRecord::Commit);
    }
    let cancelled = reader.number()?;
    if cancelled > sequence {
        return reader.fail(Problem::Sequence(cancelled));
    }
    Ok(LogRecord::Cancellation(Cancellation {
        sequence,
        cancelled,
        time: reader.time()?,
    }))
}

fn put_commit(writer: &mut Writer, record: &CommitRecord) {
    assert_indices(record);
    writer.number(record.transaction);
    writer.number(record.stage);
    writer.time(record.time);
    writer.number(record.user.into());
    let outside = u8::from(record.is_outside) * COMMIT_OUTSIDE;
    writer.byte(flag(&record.groups, COMMIT_GROUPS) | outside);
    if let Some(groups) = &record.groups {
        writer.list(groups, |writer, group| writer.number((*group).into()));
    }
    writer.string(&record.label);
    writer.list(&record.directories, |writer, directory| {
        writer.identity(directory.identity);
        put_locator(writer, &directory.locator);
    });
    writer.list(&record.objects, put_object);
    writer.list(&record.entries, put_entry);
    writer.list(&record.updates, put_update);
    writer.list(&record.made, put_made);
    changes::put(writer, &record.summary);
    if let Some(before) = &record.before {
        past::put_before(writer, before);
    }
}

fn put_object(writer: &mut Writer, object: &ObjectReference) {
    writer.identity(object.identity);
    writer.kind(object.kind);
    put_locator(writer, &object.locator);
}

fn take_object(reader: &mut Reader<'_>, directories: usize) -> Result<ObjectReference> {
    Ok(ObjectReference {
        identity: reader.identity()?,
        kind: reader.kind()?,
        locator: take_locator(reader, directories)?,
    })
}

/// Reads what follows the transaction.
fn take_commit(reader: &mut Reader<'_>, sequence: u64, transaction: u64) -> Result<CommitRecord> {
    let stage = reader.number()?;
    let time = reader.time()?;
    let user = reader.number_u32()?;
    let flags = reader.flags(COMMIT_GROUPS | COMMIT_OUTSIDE)?;
    let groups = (flags & COMMIT_GROUPS != 0).then(|| reader.list(Reader::number_u32));
    let label = reader.string()?.to_vec();
    let mut before = 0;
    let directories = reader.list(|reader| {
        let identity = reader.identity()?;
        let locator = take_locator(reader, before)?;
        before += 1;
        Ok(DirectoryReference { identity, locator })
    })?;
    let objects = reader.list(|reader| take_object(reader, directories.len()))?;
    let entries = reader.list(|reader| take_entry(reader, directories.len(), objects.len()))?;
    let updates = reader.list(|reader| take_update(reader, objects.len()))?;
    let made = reader.list(|reader| take_made(reader, objects.len()))?;
    let summary = changes::take(reader)?;
    let has_before = !reader.is_at_end();
    let before = has_before.then(|| past::take_before(reader, objects.len()));
    Ok(CommitRecord {
        sequence,
        transaction,
        stage,
        time,
        user,
        groups: groups.transpose()?,
        is_outside: flags & COMMIT_OUTSIDE != 0,
        label,
        directories,
        objects,
        entries,
        updates,
        made,
        summary,
        before: before.transpose()?,
    })
}

fn assert_indices(record: &CommitRecord) {
    assert_ne!(record.transaction, NO_COMMIT, "a commit has a transaction");
    let assert_index = |index: u32, length: usize| {
        assert!(
            (index as usize) < length,
            "a commit record's index leads out of its list"
        );
    };
    let assert_locator = |locator: &Locator, length: usize| {
        if let Locator::Entry { directory, .. } = locator {
            assert_index(*directory, length);
        }
    };
    for (before, directory) in record.directories.iter().enumerate() {
        assert_locator(&directory.locator, before);
    }
    for object in &record.objects {
        assert_locator(&object.locator, record.directories.len());
    }
    for entry in &record.entries {
        assert_index(entry.directory, record.directories.len());
        entry
            .after
            .inspect(|after| assert_index(*after, record.objects.len()));
        assert!(
            entry.before.is_some() || !entry.buries,
            "only an object that was there can be kept"
        );
    }
    for former in record.before.iter().flat_map(|before| &before.objects) {
        assert_index(former.object, record.objects.len());
    }
    for succession in record.before.iter().flat_map(|before| &before.successions) {
        assert_index(succession.after, record.objects.len());
    }
    let is_directory = |made: &Made| made.node == NewNode::Directory;
    assert!(
        !record.made.iter().any(is_directory),
        "a directory is never made again"
    );
    let made = record.made.iter().map(|made| &made.update);
    for update in record.updates.iter().chain(made) {
        assert_index(update.object, record.objects.len());
        for extent in update.content.iter().flat_map(|content| &content.extents) {
            assert!(
                extent.offset.checked_add(extent.length).is_some(),
                "a commit record's extent reaches beyond the largest offset"
            );
        }
    }
}

fn put_locator(writer: &mut Writer, locator: &Locator) {
    match locator {
        Locator::Root => writer.byte(LOCATOR_ROOT),
        Locator::Entry { directory, name } => {
            writer.byte(LOCATOR_ENTRY);
            writer.number((*directory).into());
            writer.string(name.as_bytes());
        }
        Locator::Staged { slot } => {
            writer.byte(LOCATOR_STAGED);
            writer.number(*slot);
        }
        Locator::Limbo => writer.byte(LOCATOR_LIMBO),
    }
}

fn take_locator(reader: &mut Reader<'_>, directories: usize) -> Result<Locator> {
    Ok(match reader.byte()? {
        LOCATOR_ROOT => Locator::Root,
        LOCATOR_ENTRY => Locator::Entry {
            directory: reader.index(directories)?,
            name: reader.name()?,
        },
        LOCATOR_STAGED => Locator::Staged {
            slot: reader.number()?,
        },
        LOCATOR_LIMBO => Locator::Limbo,
        other => return reader.fail(Problem::Tag(other)),
    })
}

/// Returns the flag if there is a value, and 0 otherwise.
fn flag<T>(value: &Option<T>, flag: u8) -> u8 {
    if value.is_some() { flag } else { 0 }
}

fn put_entry(writer: &mut Writer, entry: &EntryChange) {
    let buries = if entry.buries { ENTRY_BURIES } else { 0 };
    writer.byte(flag(&entry.before, ENTRY_BEFORE) | flag(&entry.after, ENTRY_AFTER) | buries);
    writer.number(entry.directory.into());
    writer.string(entry.name.as_bytes());
    if let Some(before) = entry.before {
        writer.identity(before);
    }
    if let Some(after) = entry.after {
        writer.number(after.into());
    }
}

fn take_entry(reader: &mut Reader<'_>, directories: usize, objects: usize) -> Result<EntryChange> {
    let flags = reader.flags(ENTRY_BEFORE | ENTRY_AFTER | ENTRY_BURIES)?;
    let has = |flag| flags & flag != 0;
    if has(ENTRY_BURIES) && !has(ENTRY_BEFORE) {
        return reader.fail(Problem::Tag(flags));
    }
    Ok(EntryChange {
        directory: reader.index(directories)?,
        name: reader.name()?,
        before: has(ENTRY_BEFORE).then(|| reader.identity()).transpose()?,
        after: has(ENTRY_AFTER)
            .then(|| reader.index(objects))
            .transpose()?,
        buries: has(ENTRY_BURIES),
    })
}

fn put_update(writer: &mut Writer, update: &Update) {
    let attributes = &update.attributes;
    writer.byte(
        flag(&attributes.mode, ATTRIBUTE_MODE)
            | flag(&attributes.user, ATTRIBUTE_USER)
            | flag(&attributes.group, ATTRIBUTE_GROUP)
            | flag(&attributes.accessed, ATTRIBUTE_ACCESSED)
            | flag(&attributes.modified, ATTRIBUTE_MODIFIED)
            | flag(&update.content, UPDATE_CONTENT)
            | flag(&update.owner, UPDATE_OWNER),
    );
    writer.number(update.object.into());
    for number in [attributes.mode, attributes.user, attributes.group]
        .into_iter()
        .flatten()
    {
        writer.number(number.into());
    }
    for time in [attributes.accessed, attributes.modified]
        .into_iter()
        .flatten()
    {
        writer.time(time);
    }
    if let Some(owner) = update.owner {
        writer.number(owner.user.into());
        writer.number(owner.group.into());
    }
    writer.list(&update.xattrs, put_xattr);
    if let Some(content) = &update.content {
        let whole = if content.is_whole { CONTENT_WHOLE } else { 0 };
        let found = flag(&content.found_modified, CONTENT_FOUND);
        writer.byte(flag(&content.keep, CONTENT_CUT) | whole | found);
        if let Some(time) = content.found_modified {
            writer.time(time);
        }
        if let Some(keep) = content.keep {
            writer.number(keep);
        }
        writer.number(content.length);
        writer.list(&content.extents, |writer, extent| writer.extent(*extent));
        put_source(writer, &content.source);
    }
}

fn take_update(reader: &mut Reader<'_>, objects: usize) -> Result<Update> {
    let flags = reader.flags(UPDATE_FLAGS)?;
    let has = |flag| flags & flag != 0;
    Ok(Update {
        object: reader.index(objects)?,
        attributes: AttributesChange {
            mode: has(ATTRIBUTE_MODE)
                .then(|| reader.number_u32())
                .transpose()?,
            user: has(ATTRIBUTE_USER)
                .then(|| reader.number_u32())
                .transpose()?,
            group: has(ATTRIBUTE_GROUP)
                .then(|| reader.number_u32())
                .transpose()?,
            accessed: has(ATTRIBUTE_ACCESSED).then(|| reader.time()).transpose()?,
            modified: has(ATTRIBUTE_MODIFIED).then(|| reader.time()).transpose()?,
        },
        owner: has(UPDATE_OWNER).then(|| take_owner(reader)).transpose()?,
        xattrs: reader.list(take_xattr)?,
        content: has(UPDATE_CONTENT)
            .then(|| take_content(reader))
            .transpose()?,
    })
}

fn take_owner(reader: &mut Reader<'_>) -> Result<Owner> {
    Ok(Owner {
        user: reader.number_u32()?,
        group: reader.number_u32()?,
    })
}

fn put_xattr(writer: &mut Writer, (name, value): &(Vec<u8>, Option<Vec<u8>>)) {
    writer.byte(flag(value, 1));
    writer.string(name);
    if let Some(value) = value {
        writer.string(value);
    }
}

fn take_xattr(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let is_set = reader.flags(1)? != 0;
    let name = reader.string()?.to_vec();
    let value = is_set.then(|| reader.string()).transpose()?;
    Ok((name, value.map(<[u8]>::to_vec)))
}

fn take_content(reader: &mut Reader<'_>) -> Result<ContentChange> {
    let flags = reader.flags(CONTENT_CUT | CONTENT_WHOLE | CONTENT_FOUND)?;
    let has = |flag| flags & flag != 0;
    Ok(ContentChange {
        found_modified: has(CONTENT_FOUND).then(|| reader.time()).transpose()?,
        keep: has(CONTENT_CUT).then(|| reader.number()).transpose()?,
        length: reader.number()?,
        extents: reader.list(Reader::extent)?,
        is_whole: has(CONTENT_WHOLE),
        source: take_source(reader)?,
    })
}

fn put_source(writer: &mut Writer, source: &Source) {
    match source {
        Source::Staged { slot } => {
            writer.byte(SOURCE_STAGED);
            writer.number(*slot);
        }
        Source::Carried { runs } => {
            writer.byte(SOURCE_CARRIED);
            writer.list(runs, put_run);
        }
    }
}

fn put_run(writer: &mut Writer, run: &Run) {
    writer.number(run.offset);
    writer.string(&run.bytes);
}

fn take_source(reader: &mut Reader<'_>) -> Result<Source> {
    Ok(match reader.byte()? {
        SOURCE_STAGED => Source::Staged {
            slot: reader.number()?,
        },
        SOURCE_CARRIED => Source::Carried {
            runs: reader.list(take_run)?,
        },
        other => return reader.fail(Problem::Tag(other)),
    })
}

fn take_run(reader: &mut Reader<'_>) -> Result<Run> {
    let offset = reader.number()?;
    let bytes = reader.string()?.to_vec();
    match offset.checked_add(bytes.len() as u64) {
        Some(_) => Ok(Run { offset, bytes }),
        None => reader.fail(Problem::Extent),
    }
}

fn put_made(writer: &mut Writer, made: &Made) {
    writer.kind(made.node.kind());
    match &made.node {
        NewNode::Symlink(target) => writer.string(target),
        NewNode::CharacterDevice(number) | NewNode::BlockDevice(number) => {
            writer.number(*number);
        }
        _ => {}
    }
    put_update(writer, &made.update);
}

fn take_made(reader: &mut Reader<'_>, objects: usize) -> Result<Made> {
    let node = match reader.kind()? {
        Kind::File => NewNode::File,
        Kind::Symlink => NewNode::Symlink(reader.string()?.to_vec()),
        Kind::Fifo => NewNode::Fifo,
        Kind::Socket => NewNode::Socket,
        Kind::CharacterDevice => NewNode::CharacterDevice(reader.number()?),
        Kind::BlockDevice => NewNode::BlockDevice(reader.number()?),
        Kind::Directory => return reader.fail(Problem::Tag(DIRECTORY)),
    };
    let update = take_update(reader, objects)?;
    Ok(Made { node, update })
}
