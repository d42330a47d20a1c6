//! A small commit carries what it creates and writes in its log record. One
//! flush of the log then makes everything durable. Otherwise the staged files,
//! their directory and the log would each need one.
//!
//! The staged objects are moved into the base as in any other commit, but they are not flushed. If
//! a crash has lost them, recovery makes them again from the record. If recovery finds them, it
//! sets their contents and attributes from the record.
//!
//! If new objects are large but the pages that are changed in place are few, the record carries the
//! pages alone. That saves the flush of each file in which they are staged.
//!
//! Invariants
//! 1. A record carries all new objects that the commit has staged, or none of them.
//! 2. It never carries a directory. If recovery made a directory again, moved objects into it and
//!    died, those objects would be lost.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Extent, Kind, NewNode};
use atomdir_format::record::Run;

use crate::base::carried::CarriedObject;
use crate::base::core::Core;
use crate::base::snapshot::{PAGE, read_xattrs};
use crate::ids::NodeId;
use crate::view::View;
use crate::write_set::{Carried, ContentsWrite, WriteSet};

/// With more objects than this, one flush of all is faster than carrying each.
const OBJECTS_MAX: usize = 64;

/// Whether the record is to carry all that the write set has staged.
pub(crate) fn is_small<D: Disk>(view: &mut View<D>, set: &WriteSet) -> Result<bool, Errno> {
    let mut room = view.core.options.carried_bytes_max;
    if set.created.len() > OBJECTS_MAX {
        return Ok(false);
    }
    for created in &set.created {
        let bytes = match created.kind {
            Kind::Directory => return Ok(false),
            Kind::File => view.length(created.node)?,
            _ => 0,
        };
        let Some(left) = room.checked_sub(bytes) else {
            return Ok(false);
        };
        room = left;
    }
    Ok(bytes_in_place(set) <= room)
}

/// Whether the record is to carry the pages that are changed in place, if it does not carry all.
pub(crate) fn has_few_pages<D: Disk>(core: &Core<D>, set: &WriteSet) -> bool {
    bytes_in_place(set) <= core.options.carried_bytes_max
}

/// Notes that the record is to carry the pages that are changed in place.
pub(crate) fn choose_pages(set: &mut WriteSet) {
    let contents = set.objects.iter_mut();
    let contents = contents.filter_map(|object| object.contents.as_mut());
    for contents in contents.filter(|contents| contents.replacement.is_none()) {
        contents.is_carried = true;
    }
}

fn bytes_in_place(set: &WriteSet) -> u64 {
    let in_place = set.objects.iter().filter_map(|object| {
        let contents = object.contents.as_ref()?;
        contents.replacement.is_none().then_some(contents)
    });
    let pages: u64 = in_place.map(|contents| contents.pages.total()).sum();
    pages.saturating_mul(PAGE)
}

/// Reads the data that the record will carry.
pub(crate) fn carry<D: Disk>(view: &mut View<D>, set: &WriteSet) -> Result<Carried, Errno> {
    let mut carried = Carried::default();
    for created in &set.created {
        assert!(
            created.kind != Kind::Directory,
            "a directory is never carried"
        );
        carried.created.push(Arc::new(match created.kind {
            Kind::File => carry_file(view, created.node)?,
            _ => carry_other(view, created.node)?,
        }));
    }
    carried.pages = carry_each(view, set, |contents| contents.replacement.is_none())?;
    Ok(carried)
}

/// Reads the pages that the record will carry although new objects were flushed.
pub(crate) fn carry_some_pages<D: Disk>(
    view: &mut View<D>,
    set: &WriteSet,
) -> Result<Carried, Errno> {
    Ok(Carried {
        created: Vec::new(),
        pages: carry_each(view, set, |contents| contents.is_carried)?,
    })
}

fn carry_each<D: Disk>(
    view: &mut View<D>,
    set: &WriteSet,
    is_chosen: impl Fn(&ContentsWrite) -> bool,
) -> Result<HashMap<u64, Vec<Run>>, Errno> {
    let mut pages = HashMap::new();
    for object in &set.objects {
        if let Some(contents) = object
            .contents
            .as_ref()
            .filter(|contents| is_chosen(contents))
        {
            let runs = carry_pages(view, object.node, contents)?;
            pages.insert(object.base.serial, runs);
        }
    }
    Ok(pages)
}

fn carry_file<D: Disk>(view: &mut View<D>, id: NodeId) -> Result<CarriedObject, Errno> {
    let file = view.staged_file(id)?;
    let disk = &view.core.disk;
    let stat = disk.stat(&file)?;
    let whole = Extent {
        offset: 0,
        length: stat.length,
    };
    let runs = read_runs(disk, &file, whole)?;
    // Reading the file may have changed its access time, which the transaction
    // shows.
    let times = stat.attributes.times;
    if disk.stat(&file)?.attributes.times != times {
        disk.set_times(&file, times)?;
    }
    Ok(CarriedObject {
        node: NewNode::File,
        stat,
        xattrs: read_xattrs(disk, &file)?,
        runs,
    })
}

fn carry_other<D: Disk>(view: &mut View<D>, id: NodeId) -> Result<CarriedObject, Errno> {
    let staged = view.staged(id)?.ok_or(Errno::STALE)?;
    let parent = view.staged_parent(staged.parent)?;
    let object = view.open_staged(&staged)?;
    let disk = &view.core.disk;
    let stat = disk.stat(&object)?;
    let node = match stat.kind {
        Kind::Symlink => NewNode::Symlink(disk.read_link(&parent, &staged.name)?),
        kind => NewNode::special(kind, stat.device_number).ok_or(Errno::STALE)?,
    };
    Ok(CarriedObject {
        node,
        stat,
        xattrs: read_xattrs(disk, &object)?,
        runs: Vec::new(),
    })
}

fn carry_pages<D: Disk>(
    view: &mut View<D>,
    id: NodeId,
    contents: &ContentsWrite,
) -> Result<Vec<Run>, Errno> {
    let file = view.staged_file(id)?;
    let mut runs = Vec::new();
    for (start, end) in contents.pages_to_write().iter() {
        let pages = Extent {
            offset: start * PAGE,
            length: end.saturating_mul(PAGE) - start * PAGE,
        };
        runs.append(&mut read_runs(&view.core.disk, &file, pages)?);
    }
    Ok(runs)
}

/// Reads the data in an extent of the file, without the holes.
pub(crate) fn read_runs<D: Disk>(
    disk: &D,
    file: &D::Handle,
    extent: Extent,
) -> Result<Vec<Run>, Errno> {
    let end = extent.offset.saturating_add(extent.length);
    let mut runs = Vec::new();
    let mut at = extent.offset;
    while at < end
        && let Some(data) = disk.next_data(file, at)?
        && data.offset < end
    {
        let stop = data.offset.saturating_add(data.length).min(end);
        let mut bytes = vec![0; (stop - data.offset) as usize];
        let count = disk.read_at(file, &mut bytes, data.offset)?;
        bytes.truncate(count);
        runs.push(Run {
            offset: data.offset,
            bytes,
        });
        at = stop;
    }
    Ok(runs)
}
