//! State that snapshots, transactions and commits share: the file system, the control
//! directory, the known base objects, and how to find one from another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, NewNode, Result, Stat};

use crate::base::ahead::Ahead;
use crate::base::handles::{HandleCache, HandleKey};
use crate::base::inode_numbers::InodeNumbers;
use crate::base::moving::{LookedFor, Moving};
use crate::base::on_the_way::OnTheWay;
use crate::base::past_sizes::PastSizes;
use crate::base::snapshot::read_xattrs;
use crate::base::stages::Stages;
use crate::base::survey::Survey;
use crate::base::{Base, Place, Xattrs, above};
use crate::control::ControlHandles;
use crate::lock;
use crate::names;
use crate::options::Options;

pub(crate) struct Core<D: Disk> {
    pub disk: D,
    pub root: Arc<D::Handle>,
    pub control: ControlHandles<D>,
    /// The control directory's name when it lies in the root directory.
    pub hidden: Option<Name>,
    pub device: u64,
    pub handles: HandleCache<D>,
    pub root_base: Arc<Base>,
    pub options: Options,
    /// Held for writing while a commit changes the base; readers of snapshots use [`Moving`].
    pub applying: RwLock<()>,
    pub moving: Moving,
    pub on_the_way: OnTheWay,
    pub ahead: Ahead,
    pub stages: Stages,
    pub inode_numbers: InodeNumbers,
    /// Nothing is locked under it.
    pub past_sizes: Mutex<PastSizes>,
    /// Whether a commit waits to be confirmed.
    pub awaits_confirmation: AtomicBool,
    pub survey: Mutex<Survey>,
    pub(super) probing: Mutex<()>,
    occupied: OnceLock<Name>,
    /// How much of old files all views remember.
    pub old_text_bytes: Arc<AtomicU64>,
    index: Mutex<HashMap<Identity, Weak<Base>>>,
    /// How often the base began or ended to be changed by a commit: see [`Core::turns`].
    turns: AtomicU64,
    serials: AtomicU64,
}

impl<D: Disk> Core<D> {
    pub fn new(
        disk: D,
        root: D::Handle,
        control: ControlHandles<D>,
        hidden: Option<Name>,
        options: Options,
    ) -> Result<Core<D>> {
        let stat = disk.stat(&root)?;
        let root_base = Base::new(0, Kind::Directory, stat.identity, Place::Root);
        let index = HashMap::from([(stat.identity, Arc::downgrade(&root_base))]);
        Ok(Core {
            root: Arc::new(root),
            device: stat.device,
            handles: HandleCache::new(options.handles_max),
            probing: Mutex::new(()),
            occupied: OnceLock::new(),
            old_text_bytes: Arc::default(),
            index: Mutex::new(index),
            turns: AtomicU64::new(0),
            serials: AtomicU64::new(1),
            past_sizes: Mutex::new(PastSizes::new(options.history)),
            awaits_confirmation: AtomicBool::new(false),
            survey: Mutex::default(),
            disk,
            control,
            hidden,
            root_base,
            options,
            applying: RwLock::new(()),
            moving: Moving::default(),
            on_the_way: OnTheWay::new(),
            ahead: Ahead::default(),
            stages: Stages::default(),
            inode_numbers: InodeNumbers::new(),
        })
    }

    /// Makes everything that was applied durable. A flush that fails may have lost
    /// it.
    #[track_caller]
    pub fn flush_base(&self) -> Result<()> {
        self.control.applied.clear(&self.disk)?;
        self.disk.sync_file_system(&self.root)
    }

    /// The name of a directory in the control directory that is never empty.
    pub fn occupied(&self) -> Result<&Name> {
        if let Some(name) = self.occupied.get() {
            return Ok(name);
        }
        let (disk, control) = (&self.disk, &self.control.directory);
        let make = |above: &D::Handle, name: &Name| {
            let made = disk.make(above, name, &NewNode::Directory, 0o700);
            // An earlier attempt may have failed half-way.
            made.or_else(|errno| match errno {
                Errno::EXIST => Ok(()),
                errno => Err(errno),
            })
        };
        let name = names::fixed(names::OCCUPIED);
        make(control, &name)?;
        let directory = disk.open(control, &name, Access::Directory)?;
        make(&directory, &names::fixed(names::OCCUPANT))?;
        Ok(self.occupied.get_or_init(|| name))
    }

    /// The control directory is never part of a snapshot.
    pub fn is_hidden(&self, directory: &Base, name: &Name) -> bool {
        directory.serial == 0 && self.hidden.as_ref() == Some(name)
    }

    /// Changes whenever a commit begins or ends to change the base. If it has not changed
    /// since before an object was looked at, the object had no other identity meanwhile.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    /// To be called before a commit changes the base, and when it has.
    pub fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the base object of this identity. Remembers where it was found if it
    /// was unknown, or is no longer at the place that was known.
    pub fn intern(&self, stat: &Stat, parent: &Arc<Base>, name: &Name) -> Arc<Base> {
        self.intern_or_make(stat, parent, name).0
    }

    /// Like [`Core::intern`]; also returns whether the object was unknown.
    pub fn intern_or_make(
        &self,
        stat: &Stat,
        parent: &Arc<Base>,
        name: &Name,
    ) -> (Arc<Base>, bool) {
        let known = self.known(stat.identity);
        if let Some(base) = known
            && base.kind == stat.kind
        {
            self.correct_place(&base, parent, name);
            return (base, false);
        }
        let here = Place::Entry {
            parent: parent.clone(),
            name: name.clone(),
        };
        self.intern_fresh((stat.identity, stat.kind), here)
    }

    /// Returns the base object that the history keeps in limbo under its identity.
    pub fn intern_in_limbo(&self, stat: &Stat) -> Arc<Base> {
        let limbo = Place::Limbo(names::limbo(stat.identity));
        let known = self.known(stat.identity);
        match known {
            Some(base) if base.kind == stat.kind => {
                let place = base.state().place.clone();
                // A handle only says that the file is open. It may have lost its last name since.
                let is_held = matches!(place, Place::Held);
                if is_held || self.stat_place(&place, stat.identity).is_err() {
                    base.state().place = limbo;
                }
                base
            }
            _ => self.intern_fresh((stat.identity, stat.kind), limbo).0,
        }
    }

    /// Returns the base object of an identity that was at a place, whether or not it still is.
    pub fn intern_known(&self, identity: Identity, kind: Kind, place: Place) -> Arc<Base> {
        self.intern_fresh((identity, kind), place).0
    }

    pub(super) fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    fn intern_fresh(&self, (identity, kind): (Identity, Kind), here: Place) -> (Arc<Base>, bool) {
        let serial = self.next_serial();
        let fresh = Base::new(serial, kind, identity, here);
        let mut index = lock(&self.index);
        // Another thread may have been faster.
        if let Some(base) = index.get(&identity).and_then(Weak::upgrade)
            && base.kind == kind
        {
            return (base, false);
        }
        enter(&mut index, identity, &fresh);
        (fresh, true)
    }

    /// Corrects the known place: an outside writer may have moved the object since it
    /// was first seen, or a commit may have removed the name by which it was known.
    fn correct_place(&self, base: &Arc<Base>, parent: &Arc<Base>, name: &Name) {
        let (identity, place) = base.identity_and_place();
        let is_there = match &place {
            Place::Root => true,
            Place::Entry { .. } => {
                place.is_entry(parent, name) || self.stat_place(&place, identity).is_ok()
            }
            Place::Limbo(_) | Place::Held => false,
        };
        if is_there || !base.state().place.is_same(&place) {
            return;
        }
        self.set_place(base, parent, name);
        // A commit may have taken it from there since the caller found it, and have noted where it
        // is now.
        let present = self.directory(parent);
        let present = present.and_then(|parent| self.stat_entry(&parent, name));
        if !present.is_ok_and(|stat| stat.identity == identity) {
            let mut state = base.state();
            if state.place.is_entry(parent, name) {
                state.place = place;
            }
        }
    }

    /// Remembers that the object is there now, unless the directory is known to be
    /// below the object. In that case an outside writer has moved the directory away,
    /// and the object cannot be found until the directory has been.
    pub fn set_place(&self, base: &Arc<Base>, parent: &Arc<Base>, name: &Name) {
        // Two threads at once could put two directories below each other.
        let _one_at_a_time = lock(&self.index);
        let mut to_the_root = std::iter::once(parent.clone()).chain(above(parent));
        if !to_the_root.any(|directory| Arc::ptr_eq(&directory, base)) {
            base.state().place = Place::Entry {
                parent: parent.clone(),
                name: name.clone(),
            };
        }
    }

    /// A name's path, for messages; the name alone if the directory is not known.
    pub fn path_in(&self, directory: Identity, name: &Name) -> Vec<u8> {
        let known = self.known(directory);
        match known.and_then(|directory| directory.path()) {
            Some(above) if !above.is_empty() => [&above, name.as_bytes()].join(&b'/'),
            _ => name.as_bytes().to_vec(),
        }
    }

    /// Enters the object under a second identity as well, before a commit gives it that
    /// inode: a reader that finds the inode must find the object by it.
    pub fn index_also(&self, base: &Arc<Base>, new: Identity) {
        enter(&mut lock(&self.index), new, base);
    }

    /// Enters the object under its new identity after a commit gave it a new inode.
    pub fn reindex(&self, base: &Arc<Base>, old: Identity, new: Identity) {
        let mut index = lock(&self.index);
        index.remove(&old);
        enter(&mut index, new, base);
    }

    /// No name leads to this inode any more.
    pub fn unindex(&self, old: Identity) {
        lock(&self.index).remove(&old);
    }

    /// How many objects the index holds, dead ones among them.
    pub fn known_objects(&self) -> usize {
        lock(&self.index).len()
    }

    /// Opens the directory at its present place in the base.
    pub fn directory(&self, base: &Arc<Base>) -> Result<Arc<D::Handle>> {
        self.find_directory(base, &mut LookedFor::new())
    }

    pub(super) fn find_directory(
        &self,
        base: &Arc<Base>,
        looked_for: &mut LookedFor,
    ) -> Result<Arc<D::Handle>> {
        let (identity, place) = base.identity_and_place();
        if let Place::Root = place {
            return Ok(self.root.clone());
        }
        let key = HandleKey::Directory(identity);
        if let Some(handle) = self.handles.get(key) {
            return Ok(handle);
        }
        let opened = self.look_for(identity, looked_for, |looked_for| {
            self.open_within(&place, identity, Access::Directory, looked_for)
        });
        let handle = Arc::new(opened?);
        self.handles.insert(key, handle.clone());
        Ok(handle)
    }

    /// The object of this identity, if somebody has looked at it.
    pub fn known(&self, identity: Identity) -> Option<Arc<Base>> {
        lock(&self.index).get(&identity).and_then(Weak::upgrade)
    }

    /// Calls `act` with the object itself, opened for attributes only.
    pub fn with_object<T>(
        &self,
        place: &Place,
        identity: Identity,
        act: impl FnOnce(&D::Handle) -> Result<T>,
    ) -> Result<T> {
        match place {
            Place::Root => act(&self.root),
            Place::Held => act(&*self.handles.held(identity).ok_or(Errno::STALE)?),
            _ => act(&self.open_at(place, identity, Access::Path)?),
        }
    }

    pub fn stat_place(&self, place: &Place, identity: Identity) -> Result<Stat> {
        if let Some(object) = self.ahead.object(identity) {
            return Ok(object.stat);
        }
        match place {
            Place::Root => self.disk.stat(&self.root),
            Place::Held => {
                let handle = self.handles.held(identity).ok_or(Errno::STALE)?;
                let stat = self.disk.stat(&handle)?;
                match stat.identity == identity {
                    true => Ok(stat),
                    false => Err(Errno::STALE),
                }
            }
            Place::Entry { .. } | Place::Limbo(_) => {
                self.at_place(place, identity, &mut LookedFor::new(), |directory, name| {
                    let stat = self.stat_entry(directory, name).map_err(gone_is_stale)?;
                    match stat.identity == identity {
                        true => Ok(stat),
                        false => Err(Errno::STALE),
                    }
                })
            }
        }
    }

    /// The extended attributes of an object at a place.
    pub fn xattrs_at(&self, place: &Place, identity: Identity) -> Result<Xattrs> {
        if let Some(object) = self.ahead.object(identity) {
            return Ok(object.xattrs.clone());
        }
        self.with_object(place, identity, |handle| read_xattrs(&self.disk, handle))
    }

    /// Reads a symbolic link at a place.
    pub fn link_at(&self, place: &Place, identity: Identity) -> Result<Vec<u8>> {
        if let Some(object) = self.ahead.object(identity)
            && let NewNode::Symlink(target) = &object.node
        {
            return Ok(target.clone());
        }
        self.at_place(place, identity, &mut LookedFor::new(), |directory, name| {
            let stat = self.stat_entry(directory, name).map_err(gone_is_stale)?;
            match stat.identity == identity {
                true => self.disk.read_link(directory, name).map_err(gone_is_stale),
                false => Err(Errno::STALE),
            }
        })
    }

    /// What the object looks like in the base now.
    pub fn stat_now(&self, base: &Base) -> Result<Stat> {
        self.look(|| {
            let (identity, place) = base.identity_and_place();
            self.stat_place(&place, identity)
        })
    }
}

/// Every new entry of the index is made here. Before the index grows, dead objects leave it: an
/// entry keeps the memory of its object. Room for as many again as are alive keeps that rare.
fn enter(index: &mut HashMap<Identity, Weak<Base>>, identity: Identity, base: &Arc<Base>) {
    if index.len() == index.capacity() {
        index.retain(|_, base| base.strong_count() > 0);
        let alive = index.len();
        index.reserve(alive);
    }
    index.insert(identity, Arc::downgrade(base));
}

pub(super) fn gone_is_stale(error: Errno) -> Errno {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => Errno::STALE,
        other => other,
    }
}
