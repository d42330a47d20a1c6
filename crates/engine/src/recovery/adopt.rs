//! Makes a copied store one of its own: its past then names the copy's objects.
//!
//! The past of a copy names the objects of the original. `places` finds where each of them was after
//! the newest commit, and so the object that the copy has there. A copied object in limbo has the
//! original's identity as its name.
//!
//! Whether that object is as the commits have left it, each undo finds out as after a recovery: by its
//! times of modification, its mode and its owner. What was changed between the commits and the copy
//! is an outside writer's change.
//!
//! Invariants
//! 1. A store with commits in its log that are not known to be in the base is refused. The log names
//!    objects of the original, and half of such a commit may be in the copy.
//! 2. An adoption that died can be run again. The past is replaced as a whole, while limbo has objects
//!    under both names; the next opening of the store removes the old ones. The header, which names the
//!    new place, comes last.
//! 3. Nothing that was open survives: neither transactions nor what reports them.

mod places;

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, Timestamp};
use atomdir_format::past::{PastRecord, SettledBy};
use atomdir_format::record::{CommitRecord, LogRecord};

use crate::control::log_elsewhere::LogAt;
use crate::control::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, place, read_header, trial};
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::annotations::AnnotationFile;
use crate::log::past::kept_by;
use crate::log::{Log, read_records};
use crate::names;
use crate::recovery::adopt::places::Places;
use crate::recovery::control_files::{self, ControlFiles};
use crate::recovery::log_file::read_log;
use crate::recovery::{failed, relocate};
use crate::store::Store;

/// What an adoption has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adoption {
    /// The commits whose past is kept.
    pub commits: u64,
    /// Objects that these commits name and that the copy has.
    pub objects_found: u64,
    /// Those that it does not have, or that have another length.
    pub objects_missing: u64,
    /// Transactions that were open in the original.
    pub transactions_dropped: u64,
}

/// What is known of a control directory's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// The store was made here.
    Here,
    /// It was made elsewhere, and this is a copy.
    Elsewhere,
    /// The control directory is in its place, but belongs to another root.
    OfAnotherRoot,
}

impl<D: Disk> Store<D> {
    /// Looks whether a control directory was made for this root, in this place. The caller must be
    /// able to read the header; `root` and `control` may be open for their attributes only.
    pub fn placed(disk: &D, root: &D::Handle, control: &D::Handle) -> Result<Placed, StoreError> {
        let header = read_header(disk, control)?;
        match place::check(disk, root, control, &header) {
            Ok(()) => Ok(Placed::Here),
            Err(StoreError::Copied { shares_control }) => Ok(match shares_control {
                true => Placed::OfAnotherRoot,
                false => Placed::Elsewhere,
            }),
            Err(error) => Err(error),
        }
    }

    /// Makes a copied store one of its own. Does nothing to a store in its place. The log of the
    /// original, if it is elsewhere, must show that the copy has all commits; it is only read.
    pub fn adopt(
        disk: &D,
        root: &D::Handle,
        (control, log): (D::Handle, LogAt<D>),
    ) -> Result<Option<Adoption>, StoreError> {
        match Store::placed(disk, root, &control)? {
            Placed::Here => return Ok(None),
            Placed::Elsewhere => {
                let status = disk
                    .status(root)
                    .map_err(failed("look at the file system"))?;
                trial::refuse_layered(&status)?;
            }
            Placed::OfAnotherRoot => {
                let shares_control = true;
                return Err(StoreError::Copied { shares_control });
            }
        }
        close_files(disk, &control).map_err(failed("close the files"))?;
        let control = control_files::open_anywhere(disk, (control, &log), Access::ReadWrite)?;
        let adopting = Adopting {
            disk,
            root,
            control: &control,
        };
        adopting.run().map(Some)
    }
}

/// A copy may have other modes than the original, and things that are no files.
fn close_files<D: Disk>(disk: &D, control: &D::Handle) -> Result<(), Errno> {
    for entry in disk.list(control)? {
        let stat = disk.stat_at(control, &entry.name)?;
        let mode = match stat.kind {
            Kind::File => PRIVATE_FILE,
            Kind::Directory => PRIVATE_DIRECTORY,
            _ => {
                disk.unlink(control, &entry.name)?;
                continue;
            }
        };
        if stat.attributes.mode != mode {
            disk.set_mode(&disk.open(control, &entry.name, Access::Path)?, mode)?;
        }
    }
    Ok(())
}

struct Adopting<'a, D: Disk> {
    disk: &'a D,
    root: &'a D::Handle,
    control: &'a ControlFiles<D>,
}

impl<D: Disk> Adopting<'_, D> {
    fn run(&self) -> Result<Adoption, StoreError> {
        let (disk, handles) = (self.disk, &self.control.handles);
        let mut header = self.control.header;
        let (log, applied) = (&self.control.log, &handles.applied);
        if !read_log(disk, log, applied, &header, drop)?
            .records
            .is_empty()
        {
            return Err(StoreError::CopiedTail);
        }
        let mut adoption = Adoption::default();
        let staged = disk
            .list(&handles.stage)
            .map_err(failed("list staged files"))?;
        let staged = staged
            .iter()
            .filter_map(|entry| names::slot_number(&entry.name));
        adoption.transactions_dropped = staged.count() as u64;
        self.rewrite_past(&mut adoption)?;
        for name in [names::TRANSACTIONS, names::PRIVILEGES] {
            let removed = control::remove(disk, &handles.directory, &names::fixed(name));
            removed.map_err(failed("remove what was open"))?;
        }
        self.drop_unconfirmed()?;
        control::purge(disk, &handles.stage, |_| false).map_err(failed("remove staged files"))?;
        applied
            .clear(disk)
            .map_err(failed("clear the applied mark"))?;
        disk.sync_directory(&handles.limbo)
            .map_err(failed("flush the past"))?;
        if self.control.log.id.is_some() {
            relocate::bring_inside(disk, &handles.directory)?;
        }
        header.place = place::present(disk, self.root, &handles.directory, &self.control.lock)?;
        control::write_header(disk, &handles.directory, &header)?;
        Ok(adoption)
    }

    /// The copy's commits stay: what nobody has confirmed was for the original.
    fn drop_unconfirmed(&self) -> Result<(), StoreError> {
        let (disk, directory) = (self.disk, &self.control.handles.directory);
        let id = self.control.header.store_id;
        let mut annotations = AnnotationFile::read(disk, directory, id)?;
        annotations.forget_after(Sequence(0));
        annotations.write(disk, directory, id)
    }

    fn rewrite_past(&self, adoption: &mut Adoption) -> Result<(), StoreError> {
        let Some(past) = &self.control.past else {
            return Ok(());
        };
        let (disk, directory) = (self.disk, &self.control.handles.directory);
        let (id, last) = (
            self.control.header.store_id,
            self.control.header.last_sequence,
        );
        let limbo = Limbo::look(disk, &self.control.handles.limbo)?;
        let mut places = Places::new(self.control.header.place.root);
        let mut newest = 0;
        let read = read_records(disk, past, id, u64::MAX, |record: PastRecord| {
            if record.record.sequence() <= last {
                newest = record.record.sequence();
                record
                    .record
                    .commit()
                    .into_iter()
                    .for_each(|commit| places.note(commit));
            }
            None::<()>
        })?;
        let (new, name) = (names::fixed(names::PAST_NEW), names::fixed(names::PAST));
        control::remove(disk, directory, &new).map_err(failed("write the past"))?;
        let file = disk.create(directory, &new, PRIVATE_FILE);
        let file = file.map_err(failed("write the past"))?;
        let stat = disk.stat(&file).map_err(failed("read the clock"))?;
        let mut written = Log::<D>::new(file, id, 0, 0);
        // An older past counts for nothing.
        if newest == last {
            let mut matcher = Matcher {
                adopting: self,
                limbo: &limbo,
                known: HashMap::new(),
                taken: HashSet::new(),
                settled: stat.changed,
            };
            let old = disk.open(directory, &name, Access::Read);
            let old = Log::<D>::new(old.map_err(failed("read the past"))?, id, read.tail, last);
            old.for_each(disk, |mut record: PastRecord| {
                if record.record.sequence() > last {
                    return Ok(());
                }
                matcher.take_over(&places, &mut record)?;
                adoption.commits += u64::from(record.record.commit().is_some());
                written
                    .append(disk, &record)
                    .map_err(failed("write the past"))
            })?;
            adoption.objects_found = matcher.taken.len() as u64;
            adoption.objects_missing = matcher.known.len() as u64 - adoption.objects_found;
        }
        // What the past names must be in limbo before.
        let flushed = disk.sync_directory(&self.control.handles.limbo);
        flushed.map_err(failed("flush limbo"))?;
        let (flush, rename) = (failed("flush the past"), failed("replace the past"));
        written.give_back(disk).map_err(&flush)?;
        written.flush(disk, last).map_err(&flush)?;
        let renamed = disk.rename(
            (directory, &new),
            (directory, &name),
            atomdir_disk::RenameMode::Replace,
        );
        renamed.map_err(&rename)?;
        disk.sync_directory(directory).map_err(&rename)
    }
}

/// What a copy has in limbo.
struct Limbo {
    /// Objects by the identity in their name, and by their own.
    objects: HashMap<Identity, (Name, Identity)>,
}

impl Limbo {
    fn look<D: Disk>(disk: &D, limbo: &D::Handle) -> Result<Limbo, StoreError> {
        let failed = failed("look into limbo");
        let mut objects = HashMap::new();
        for entry in disk.list(limbo).map_err(&failed)? {
            if let Some((named, None)) = names::parse_limbo(&entry.name) {
                let own = disk.stat_at(limbo, &entry.name).map_err(&failed)?.identity;
                objects.insert(named, (entry.name.clone(), own));
                objects.insert(own, (entry.name, own));
            }
        }
        Ok(Limbo { objects })
    }
}

struct Matcher<'a, D: Disk> {
    adopting: &'a Adopting<'a, D>,
    limbo: &'a Limbo,
    /// What became of the identities in the past.
    known: HashMap<Identity, Identity>,
    /// Objects of the copy that have been found.
    taken: HashSet<Identity>,
    settled: Timestamp,
}

impl<D: Disk> Matcher<'_, D> {
    fn take_over(&mut self, places: &Places, record: &mut PastRecord) -> Result<(), StoreError> {
        record.settled = self.settled;
        record.settled_by = SettledBy::Adoption;
        let LogRecord::Commit(commit) = &mut record.record else {
            return Ok(());
        };
        let kept: Vec<_> = kept_by(commit).collect();
        let mut failure = None;
        for_each_identity(commit, |identity| match self.find(places, *identity) {
            Ok(found) => *identity = found,
            Err(error) => failure = Some(error),
        });
        if let Some(error) = failure {
            return Err(error);
        }
        for (object, pages_of) in kept {
            let now = self.find(places, object)?;
            let (from, to) = match (pages_of, self.limbo.objects.get(&object)) {
                (Some(_), _) => (
                    names::in_limbo((object, pages_of)),
                    names::in_limbo((now, pages_of)),
                ),
                (None, Some((name, _))) => (name.clone(), names::limbo(now)),
                (None, None) => continue,
            };
            self.name_in_limbo(&from, &to)?;
        }
        Ok(())
    }

    /// Keeps the old name, if it can.
    fn name_in_limbo(&self, from: &Name, to: &Name) -> Result<(), StoreError> {
        let (disk, limbo) = (self.adopting.disk, &self.adopting.control.handles.limbo);
        if from == to {
            return Ok(());
        }
        let named = match disk.link((limbo, from), (limbo, to)) {
            // A directory has one name. What limbo says of it is found by its identity.
            Err(Errno::PERM) => disk.rename(
                (limbo, from),
                (limbo, to),
                atomdir_disk::RenameMode::NoReplace,
            ),
            linked => linked,
        };
        match named {
            // It was named before, or the copy lacks it: then there is a conflict later.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("name the objects in limbo")(errno)),
        }
    }

    /// The object of the copy; the identity itself where there is none, since no other object has it.
    fn find(&mut self, places: &Places, identity: Identity) -> Result<Identity, StoreError> {
        if let Some(found) = self.known.get(&identity) {
            return Ok(*found);
        }
        let found = match self.limbo.objects.get(&identity) {
            Some((_, own)) => Some(*own),
            None => {
                let in_limbo = |directory: &Identity| {
                    let found = self.limbo.objects.get(directory);
                    found.map(|(name, _)| name.clone())
                };
                let Adopting {
                    disk,
                    root,
                    control,
                } = self.adopting;
                let from = (*root, &*control.handles.limbo);
                let found = places.find(*disk, from, in_limbo, identity);
                found.map_err(failed("look for the copies of objects"))?
            }
        };
        let found = found.filter(|found| self.taken.insert(*found));
        let found = found.unwrap_or(identity);
        self.known.insert(identity, found);
        Ok(found)
    }
}

fn for_each_identity(commit: &mut CommitRecord, each: impl FnMut(&mut Identity)) {
    let directories = commit.directories.iter_mut();
    let directories = directories.map(|directory| &mut directory.identity);
    let objects = commit.objects.iter_mut().map(|object| &mut object.identity);
    let entries = commit.entries.iter_mut();
    let befores = entries.filter_map(|entry| entry.before.as_mut());
    let before = commit.before.iter_mut();
    let successions = before.flat_map(|before| &mut before.successions);
    let successions = successions.map(|succession| &mut succession.before);
    directories
        .chain(objects)
        .chain(befores)
        .chain(successions)
        .for_each(each);
}
