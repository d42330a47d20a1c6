//! Makes objects again that the log carries and a crash has lost.
//!
//! An object made again has a new identity, which replaces the old one in all
//! records. If this recovery dies as well, the next one makes yet another object.
//! It then takes the objects that this recovery put in place for an outside
//! writer's.

use std::collections::HashMap;

use atomdir_disk::{Access, Disk, Errno, Identity, Name, NewNode, reason};
use atomdir_format::privileges::PrivilegesNote;
use atomdir_format::record::{CommitRecord, FormerPages, Locator};

use crate::apply::{Apply, ApplyError, Desired};
use crate::base::core::Core;
use crate::ids::{Sequence, TransactionId};
use crate::names;

/// Objects made again, by the identities that they had.
type Remade = HashMap<Identity, (Identity, Locator)>;

/// Makes every missing object that the records carry and that `desired`, their
/// composition, still wants. Returns the new identities by the old ones.
pub(crate) fn remake<D: Disk>(
    core: &Core<D>,
    records: &mut [CommitRecord],
    note: Option<&mut PrivilegesNote>,
    desired: &Desired,
) -> Result<HashMap<Identity, Identity>, ApplyError> {
    let (earlier, writers) = Default::default();
    let mut apply = Apply::new(core, desired, &earlier, None, &writers);
    apply.leave_closed();
    let mut remade = Remade::new();
    // Slots above all that the view gave out.
    let mut slot = u64::MAX;
    for record in &*records {
        for made in &record.made {
            let identity = record.objects[made.update.object as usize].identity;
            let is_wanted = !desired.homes(identity).is_empty() || desired.is_buried(identity);
            if !is_wanted || apply.exists(identity)? {
                continue;
            }
            let stage = TransactionId(record.stage);
            let new = make(core, stage, &names::slot(slot), &made.node);
            let new = new.map_err(|errno| {
                let path = format!("stage/{stage}/{slot}");
                let reason = format!("it cannot be made again: {errno}", errno = reason(errno));
                ApplyError::new(path, reason, errno)
            })?;
            remade.insert(identity, (new, Locator::Staged { slot }));
            slot -= 1;
        }
    }
    for record in records {
        rename_pages(core, record, &remade)?;
        substitute(record, &remade);
    }
    for privileges in note.into_iter().flat_map(|note| &mut note.files) {
        if let Some((identity, _)) = remade.get(&privileges.file) {
            privileges.file = *identity;
        }
    }
    let identities = remade.into_iter().map(|(old, (new, _))| (old, new));
    Ok(identities.collect())
}

fn make<D: Disk>(
    core: &Core<D>,
    stage: TransactionId,
    name: &Name,
    node: &NewNode,
) -> Result<Identity, Errno> {
    let (disk, above) = (&core.disk, &core.control.stage);
    let directory = names::transaction(stage);
    match disk.make(above, &directory, &NewNode::Directory, 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let stage = disk.open(above, &directory, Access::Directory)?;
    // A recovery that died may have left this name.
    match disk.unlink(&stage, name) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    disk.make(&stage, name, node, 0o600)?;
    Ok(disk.stat_at(&stage, name)?.identity)
}

/// Gives the files with a commit's old pages second names, for the new identities. The first
/// names stay, because the log still has the old identities.
fn rename_pages<D: Disk>(
    core: &Core<D>,
    record: &CommitRecord,
    remade: &Remade,
) -> Result<(), ApplyError> {
    let limbo = &*core.control.limbo;
    let sequence = Sequence(record.sequence);
    for former in record.before.iter().flat_map(|before| &before.objects) {
        let old = record.objects[former.object as usize].identity;
        let Some((new, _)) = remade.get(&old) else {
            continue;
        };
        if former.pages != FormerPages::Limbo {
            continue;
        }
        let from = names::saved_pages(old, sequence);
        let to = names::saved_pages(*new, sequence);
        match core.disk.link((limbo, &from), (limbo, &to)) {
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => {
                let reason = format!("it cannot be linked: {}", reason(errno));
                return Err(ApplyError::new(format!("limbo/{from:?}"), reason, errno));
            }
        }
    }
    Ok(())
}

fn substitute(record: &mut CommitRecord, remade: &Remade) {
    for object in &mut record.objects {
        if let Some((identity, locator)) = remade.get(&object.identity) {
            object.identity = *identity;
            if let Locator::Staged { .. } = object.locator {
                object.locator = locator.clone();
            }
        }
    }
    let befores = record.entries.iter_mut();
    let befores = befores.filter_map(|entry| entry.before.as_mut());
    let successions = record.before.iter_mut();
    let successions = successions.flat_map(|before| &mut before.successions);
    for before in befores.chain(successions.map(|succession| &mut succession.before)) {
        if let Some((identity, _)) = remade.get(before) {
            *before = *identity;
        }
    }
}
