//! Reads from the base the data that the record must contain. This happens before the record is
//! logged, while the commit can still fail and leave nothing behind.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Access, Disk, Errno, Kind};

use crate::apply::WritableFiles;
use crate::base::Place;
use crate::base::core::Core;
use crate::base::credentials::Credentials;
use crate::commit::merge;
use crate::error::CommitError;
use crate::log::record_builder::Present;
use crate::seen::Seen;
use crate::write_set::{Object, WriteSet};

/// Opens every file that will be changed in place while there is still a way back, keeps up to
/// `writers_max` of them open for apply, and looks up the facts about the base that the record must
/// contain. The attributes that validation read hold until the commit is applied; otherwise the commit
/// is cancelled.
pub(crate) fn look_at_base<D: Disk>(
    core: &Core<D>,
    (set, validated): (&WriteSet, &Seen),
    writers_max: usize,
    acting: Option<&Credentials>,
) -> Result<(Present, WritableFiles<D>), CommitError> {
    let mut writers = WritableFiles::<D>::new();
    let mut present = Present {
        modes: modes_of_moved(core, set),
        ..Default::default()
    };
    let timed = set
        .objects
        .iter()
        .filter(|object| object.attributes.modified.is_some());
    let timed: HashSet<u64> = timed.map(|object| object.base.serial).collect();
    for object in &set.objects {
        if object.writes_attributes() {
            let stat = validated.stat(&object.base);
            let stat = stat.or_else(|| core.stat_now(&object.base).ok());
            let owner = stat.map(|stat| (object.base.serial, stat.attributes.owner));
            present.owners.extend(owner);
        }
        let Some(contents) = &object.contents else {
            continue;
        };
        let failed = |errno| CommitError::io("write to", &object.path, errno);
        let (identity, place) = object.base.identity_and_place();
        if contents.replacement.is_none() {
            let opened = as_user(core, acting, || {
                core.open_at(&place, identity, Access::ReadWrite)
            });
            let stat = match opened {
                // A write of no bytes shows whether the file can be written.
                Ok(file) => {
                    let written = core.disk.write_at(&file, &[], 0);
                    let stat = written.and_then(|()| core.disk.stat(&file));
                    if writers.len() < writers_max {
                        writers.insert(identity, file);
                    }
                    stat
                }
                // The transaction has given the owner the right, which the base
                // does not show yet.
                Err(Errno::ACCESS) if object.attributes.mode.is_some() => {
                    core.stat_place(&place, identity)
                }
                Err(errno) => Err(errno),
            };
            let stat = stat.map_err(failed)?;
            let found = (stat.length, stat.attributes.times.modified);
            present.files.insert(object.base.serial, found);
            continue;
        }
        merge::refuse_linked_since(core, object)?;
        if let Place::Entry { parent, .. } = place
            && !present.directory_times.contains_key(&parent.serial)
            && !timed.contains(&parent.serial)
        {
            let modified = core
                .stat_now(&parent)
                .map_err(failed)?
                .attributes
                .times
                .modified;
            present.directory_times.insert(parent.serial, modified);
        }
    }
    Ok((present, writers))
}

/// Opens a file as the user. Its directory and those above were checked (`permitted`).
fn as_user<D: Disk, T>(
    core: &Core<D>,
    user: Option<&Credentials>,
    open: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let Some(user) = user.filter(|_| core.options.privileges.all) else {
        return open();
    };
    let _acting = core.disk.act_as(user.user, &user.groups)?;
    open()
}

/// The modes of directories that apply must open up to move them: see
/// `apply::rights`.
fn modes_of_moved<D: Disk>(core: &Core<D>, set: &WriteSet) -> HashMap<u64, u32> {
    if core.options.privileges.all {
        return HashMap::new();
    }
    let moved = set.entries.iter().filter_map(|entry| match &entry.after {
        Some(Object::Base(base)) if base.kind == Kind::Directory => Some(base),
        _ => None,
    });
    let modes =
        moved.filter_map(|base| Some((base.serial, core.stat_now(base).ok()?.attributes.mode)));
    modes.filter(|(_, mode)| mode & 0o300 != 0o300).collect()
}
