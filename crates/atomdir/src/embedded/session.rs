//! A transaction of the engine, used without a mount.

use super::attributes::{change_attributes, set_attributes};
use super::file::EmbeddedFile;
use super::permission::Rights;
use super::walk::{Known, PathEnd, walk};
use super::{Embedded, annotate, convert, history, lock};
use crate::api::session::{
    AttributeChange, Files, Links, LockWanted, OpenFile, Result, Session, Syncable,
};
use crate::api::{
    BeginError, CommitError, Conflict, DirEntry, LockError, Metadata, OpenOptions, Refreshed,
    SavepointError, StoreError, Take, bytes_of,
};
use crate::requests::SnapshotContents;
use atomdir_disk::{Errno, Kind, LinuxDisk, RenameMode};
use atomdir_engine as engine;
use atomdir_engine::{Caller, NewNode, NodeId, Permission};
use atomdir_protocol::Committed;
use atomdir_types::{ChangeLine, Isolation, Side, Terms, TransactionId};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(super) type Engine = engine::Transaction<LinuxDisk>;

/// The longest target of a symbolic link (PATH_MAX, without the zero at its end).
const TARGET_LENGTH_MAX: usize = 4095;

pub(super) struct EmbeddedTransaction {
    pub(super) store: Arc<Embedded>,
    pub(super) transaction: Arc<Engine>,
    pub(super) rights: Rights,
    pub(super) caller: Caller,
    /// Held while a file is extended by an append.
    pub(super) appending: Mutex<()>,
}

impl EmbeddedTransaction {
    pub(super) fn new(store: Arc<Embedded>, transaction: Arc<Engine>) -> EmbeddedTransaction {
        let rights = Rights {
            user: store.user.clone(),
            is_privileged: store.is_privileged,
            protection: store.protection,
        };
        let caller = Caller {
            user: rights.user.user,
            // The effective group is the last one.
            group: rights.user.groups.last().copied().unwrap_or(u32::MAX),
        };
        EmbeddedTransaction {
            store,
            transaction,
            rights,
            caller,
            appending: Mutex::new(()),
        }
    }

    /// The engine's transaction, for the process that has begun it.
    pub(super) fn engine(&self) -> Result<&Engine> {
        match self.store.is_here() {
            true => Ok(&self.transaction),
            false => Err(Errno::STALE),
        }
    }

    fn walk(&self, path: &Path, links: Links) -> Result<PathEnd<'_>> {
        let follow = links == Links::Follow;
        walk(self.engine()?, &self.rights, path, follow)
    }

    fn find(&self, path: &Path, links: Links) -> Result<Known<'_>> {
        self.walk(path, links)?.existing()
    }

    /// Where a new object will be. A path without a last name fails with `EEXIST`.
    fn vacant(&self, path: &Path) -> Result<PathEnd<'_>> {
        let place = self.walk(path, Links::Keep)?;
        place.name(Errno::EXIST)?;
        if place.object.is_some() {
            return Err(Errno::EXIST);
        }
        self.rights
            .require_entries(self.engine()?, &place.directory)?;
        Ok(place)
    }

    fn make(&self, place: &PathEnd<'_>, what: NewNode, mode: u32) -> Result<Known<'_>> {
        let engine = self.engine()?;
        let name = place.name(Errno::EXIST)?;
        let umask = self.store.umask;
        let parent = place.directory.node;
        let made = engine.create(parent, name, what, mode & 0o7777, umask, self.caller)?;
        Ok(Known::new(engine, made))
    }

    /// The place of an object that is to be removed or renamed, and the object's attributes.
    fn removable<'a>(&self, place: &'a PathEnd<'_>) -> Result<&'a Known<'a>> {
        let object = place.object.as_ref().ok_or(Errno::NOENT)?;
        self.rights
            .require_entries(self.engine()?, &place.directory)?;
        self.rights
            .require_removal(&place.directory.attributes, &object.attributes)?;
        Ok(object)
    }

    fn open_existing(&self, found: Known<'_>, options: &OpenOptions) -> Result<NodeId> {
        if options.create_new {
            return Err(Errno::EXIST);
        }
        match found.attributes.kind {
            Kind::Symlink => return Err(Errno::LOOP),
            Kind::Directory if options.writes() => return Err(Errno::ISDIR),
            _ => {}
        }
        let engine = self.engine()?;
        if options.read {
            self.rights
                .require(engine, found.node, &found.attributes, Permission::Read)?;
        }
        if options.writes() {
            self.rights
                .require(engine, found.node, &found.attributes, Permission::Write)?;
        }
        match found.attributes.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::ISDIR),
            // There is no kernel between the program and the view that could open them.
            _ => return Err(Errno::OPNOTSUPP),
        }
        if options.truncate {
            let empty = AttributeChange {
                length: Some(0),
                ..AttributeChange::default()
            };
            change_attributes(self, found.node, &empty)?;
        }
        Ok(found.into_node())
    }

    /// Opens or creates a file. The view keeps the node until the caller forgets it.
    fn open_node(&self, path: &Path, options: &OpenOptions) -> Result<NodeId> {
        options.check()?;
        let links = match options.follow && !options.create_new {
            true => Links::Follow,
            false => Links::Keep,
        };
        loop {
            let mut place = self.walk(path, links)?;
            if place.name.is_none() {
                return Err(Errno::ISDIR);
            }
            if let Some(object) = place.object.take() {
                return self.open_existing(object, options);
            }
            if !options.create && !options.create_new {
                return Err(Errno::NOENT);
            }
            let engine = self.engine()?;
            self.rights.require_entries(engine, &place.directory)?;
            match self.make(&place, NewNode::File, options.mode) {
                Ok(made) => return Ok(made.into_node()),
                // Another thread was first.
                Err(Errno::EXIST) if !options.create_new => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Files for EmbeddedTransaction {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Box<dyn OpenFile + '_>> {
        let node = self.open_node(path, options)?;
        Ok(Box::new(EmbeddedFile::new(self, node, options)))
    }

    fn metadata(&self, path: &Path, links: Links) -> Result<Metadata> {
        let found = self.find(path, links)?;
        let attributes = self.engine()?.attributes(found.node)?;
        Ok(convert::metadata(attributes))
    }

    fn set_attributes(&self, path: &Path, links: Links, change: &AttributeChange) -> Result<()> {
        let found = self.find(path, links)?;
        set_attributes(self, found.node, change)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> Result<()> {
        let place = self.vacant(path)?;
        self.make(&place, NewNode::Directory, mode & 0o1777)
            .map(drop)
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let target = target.as_os_str().as_bytes();
        match target.len() {
            0 => return Err(Errno::NOENT),
            length if length > TARGET_LENGTH_MAX => return Err(Errno::NAMETOOLONG),
            _ => {}
        }
        let place = self.vacant(path)?;
        let link = NewNode::Symlink(target.to_vec());
        self.make(&place, link, 0o777).map(drop)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let found = self.find(path, Links::Keep)?;
        let target = self.engine()?.read_link(found.node)?;
        Ok(OsString::from_vec(target).into())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let engine = self.engine()?;
        let object = self.find(from, Links::Keep)?;
        let place = self.vacant(to)?;
        self.rights
            .require_link(engine, object.node, &object.attributes)?;
        let name = place.name(Errno::EXIST)?;
        let made = engine.link(object.node, place.directory.node, name)?;
        drop(Known::new(engine, made));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let engine = self.engine()?;
        let from = self.walk(from, Links::Keep)?;
        let to = self.walk(to, Links::Keep)?;
        let (name, new_name) = (from.name(Errno::BUSY)?, to.name(Errno::BUSY)?);
        let moved = self.removable(&from)?;
        let is_other_directory = from.directory.node != to.directory.node;
        let require_move = |object: &Known<'_>| match object.attributes.kind {
            // Its entry `..` changes.
            Kind::Directory if is_other_directory => {
                self.rights
                    .require(engine, object.node, &object.attributes, Permission::Write)
            }
            _ => Ok(()),
        };
        self.rights.require_entries(engine, &to.directory)?;
        require_move(moved)?;
        if let Some(target) = &to.object {
            let directory = &to.directory.attributes;
            self.rights.require_removal(directory, &target.attributes)?;
            if mode == RenameMode::Exchange {
                require_move(target)?;
            }
        }
        let parents = (from.directory.node, to.directory.node);
        engine.rename(parents.0, name, parents.1, new_name, mode)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let place = self.walk(path, Links::Keep)?;
        let name = place.name(Errno::ISDIR)?;
        self.removable(&place)?;
        self.engine()?.unlink(place.directory.node, name)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let place = self.walk(path, Links::Keep)?;
        let name = place.name(Errno::INVAL)?;
        self.removable(&place)?;
        self.engine()?.remove_directory(place.directory.node, name)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let engine = self.engine()?;
        let found = self.find(path, Links::Follow)?;
        if found.attributes.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.rights
            .require(engine, found.node, &found.attributes, Permission::Read)?;
        let entries = engine.list(found.node)?.into_iter();
        let entries = entries.map(|entry| DirEntry {
            file_name: OsString::from_vec(entry.name.as_bytes().to_vec()),
            kind: entry.kind,
            inode: entry.inode,
        });
        Ok(entries.collect())
    }

    fn xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<Vec<u8>> {
        let engine = self.engine()?;
        let found = self.find(path, links)?;
        self.rights
            .require_xattr(engine, found.node, &found.attributes, name)?;
        engine.xattr(found.node, name)
    }

    fn xattr_names(&self, path: &Path, links: Links) -> Result<Vec<Vec<u8>>> {
        let found = self.find(path, links)?;
        let mut names = self.engine()?.xattr_names(found.node)?;
        names.retain(|name| self.rights.may_see_xattr(name));
        Ok(names)
    }

    fn set_xattr(&self, path: &Path, links: Links, name: &[u8], value: &[u8]) -> Result<()> {
        let engine = self.engine()?;
        let found = self.find(path, links)?;
        let object = &found.attributes;
        self.rights
            .require_xattr_change(engine, found.node, object, name)?;
        let is_of_group = self.rights.user.groups.contains(&object.owner.group);
        let kill_set_group_id = !self.rights.is_privileged && !is_of_group;
        engine.set_xattr(found.node, name, value, 0, kill_set_group_id)
    }

    fn remove_xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<()> {
        let engine = self.engine()?;
        let found = self.find(path, links)?;
        self.rights
            .require_xattr_change(engine, found.node, &found.attributes, name)?;
        engine.remove_xattr(found.node, name)
    }
}

impl Session for EmbeddedTransaction {
    fn id(&self) -> TransactionId {
        self.transaction.id()
    }

    fn isolation(&self) -> Isolation {
        self.transaction.isolation()
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn open_shared(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Box<dyn OpenFile>> {
        let node = self.open_node(path, options)?;
        Ok(Box::new(EmbeddedFile::new(self, node, options)))
    }

    fn view(&self) -> Option<&Path> {
        None
    }

    fn view_directory(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn changes(&self) -> Result<Vec<ChangeLine>> {
        self.engine()?.changes()
    }

    fn object_of(
        &self,
        side: Side,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>> {
        let what = (side, path);
        history::object_of(self.engine()?, &self.rights, what, contents_length_max)
    }

    fn met(&self) -> Vec<Conflict> {
        Conflict::all(self.transaction.met())
    }

    fn set_savepoint(&self, name: &[u8]) -> std::result::Result<(), SavepointError> {
        self.store.here()?;
        let set = self.transaction.set_savepoint(name);
        set.map_err(convert::savepoint_error)
    }

    fn roll_back(&self, name: &[u8]) -> std::result::Result<(), SavepointError> {
        self.store.here()?;
        let rolled = self.transaction.roll_back(name);
        rolled.map(drop).map_err(convert::savepoint_error)
    }

    fn nest(&self) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let options = convert::options_of_another(&self.transaction);
        let nested = self.store.here()?.begin_nested(&self.transaction, options);
        let nested = nested.map_err(convert::begin_error)?;
        let nested = EmbeddedTransaction::new(self.store.clone(), nested);
        Ok(Arc::new(nested))
    }

    fn fork(&self) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let options = convert::options_of_another(&self.transaction);
        let fork = self.store.here()?.fork(&self.transaction, options);
        let fork = fork.map_err(convert::fork_error)?;
        Ok(Arc::new(EmbeddedTransaction::new(self.store.clone(), fork)))
    }

    fn lock(&self, wanted: &LockWanted<'_>) -> std::result::Result<(), LockError> {
        let store = self.store.here()?;
        lock::lock(store, &self.transaction, &self.rights.user, wanted)
    }

    fn commit(&self) -> std::result::Result<Committed, CommitError> {
        self.commit_whole().map(convert::committed)
    }

    fn commit_part(
        &self,
        paths: &[&Path],
    ) -> std::result::Result<(Committed, Vec<ChangeLine>), CommitError> {
        let paths = bytes_of(paths);
        let mut committed = self.commit_by(|store| {
            store.commit_portion(
                &self.transaction,
                engine::Portion::part(&paths),
                &mut |_| {},
            )
        })?;
        let landed = std::mem::take(&mut committed.landed).into_iter();
        let landed = landed.map(ChangeLine::written_out).collect();
        Ok((convert::committed(committed), landed))
    }

    fn abort_part(&self, paths: &[&Path]) -> std::result::Result<Vec<ChangeLine>, CommitError> {
        self.store.here()?;
        let dropped = self.transaction.drop_part(&bytes_of(paths));
        let dropped = dropped.map_err(convert::drop_error)?.changes.into_iter();
        Ok(dropped.map(ChangeLine::written_out).collect())
    }

    fn set_terms(&self, terms: Terms) -> std::result::Result<(), CommitError> {
        annotate::set_terms(self.store.here()?, &self.transaction, terms)
    }

    fn conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError> {
        let found = self.store.here()?.list_conflicts(&self.transaction);
        Ok(Conflict::all(found.map_err(convert::commit_error)?))
    }

    fn listed_conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError> {
        self.store.here()?;
        Ok(Conflict::all(self.transaction.listed_conflicts()))
    }

    fn commit_with_sides(&self, sides: &[Take]) -> std::result::Result<Committed, CommitError> {
        let sides = engine::Sides {
            mine: Take::Mine.numbers(sides),
            theirs: Take::Theirs.numbers(sides),
        };
        self.commit_by(|store| {
            store.commit_portion(
                &self.transaction,
                engine::Portion::Sides(&sides),
                &mut |_| {},
            )
        })
        .map(convert::committed)
    }

    fn refresh(&self) -> std::result::Result<Refreshed, CommitError> {
        let refreshed = self.store.here()?.refresh(&self.transaction);
        let refreshed = refreshed.map_err(convert::refresh_error)?;
        Ok(Refreshed {
            from: refreshed.from,
            to: refreshed.to,
        })
    }

    fn keep(&self) -> std::result::Result<(), StoreError> {
        Err(StoreError::NeedsService)
    }

    fn sync(&self) -> std::result::Result<(), StoreError> {
        Err(StoreError::NeedsService)
    }

    fn abort(&self) {
        if let Ok(store) = self.store.here() {
            store.abort(&self.transaction);
        }
    }

    fn store(&self) -> Arc<dyn Syncable> {
        self.store.durable()
    }
}
