//! A bounded cache of open handles that evicts the least recently used first.
//!
//! Every handle that is kept open for speed is here, under a key that says how to open it again. So
//! the number of open handles grows with `handles_max`, not with the transactions and what they
//! change. A handle is held until it is released only if it is the only way to reach its file, and
//! at most a quarter of `handles_max` are held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use atomdir_disk::{Disk, Identity};

use crate::ids::{NodeId, TransactionId};
use crate::lock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HandleKey {
    /// A directory of the base, of limbo or of a staged tree.
    Directory(Identity),
    /// A regular file's contents, for reading.
    Contents(Identity),
    /// A transaction's directory of the staging directory.
    Stage(TransactionId),
    /// A staged file of a transaction, for reading and writing.
    Staged(TransactionId, NodeId),
}

pub(crate) struct HandleCache<D: Disk> {
    state: Mutex<State<D>>,
    handles_max: usize,
}

struct State<D: Disk> {
    /// Files that older snapshots can reach only by these handles.
    held: HashMap<Identity, Held<D::Handle>>,
    /// Objects that left the base and that older snapshots may still read.
    gone: Gone,
    handles: HashMap<HandleKey, Cached<D::Handle>>,
    uses: u64,
}

struct Cached<H> {
    handle: Arc<H>,
    /// When it was used last, in uses of the cache.
    used: u64,
    /// It is of a directory in a transaction's staging directory, and is dropped with that.
    of: Option<TransactionId>,
}

struct Held<H> {
    handle: Arc<H>,
    /// A symbolic link's, which is read by name and not by handle.
    target: Option<Vec<u8>>,
}

/// Bounded: an open snapshot must not cost more memory with everything that others
/// replace.
enum Gone {
    These(Vec<Identity>),
    /// Too many to list.
    Many,
}

const GONE_MAX: usize = 1024;

impl<D: Disk> HandleCache<D> {
    pub fn new(handles_max: usize) -> Self {
        let state = State {
            held: HashMap::new(),
            gone: Gone::These(Vec::new()),
            handles: HashMap::new(),
            uses: 0,
        };
        HandleCache {
            state: Mutex::new(state),
            handles_max: handles_max.max(16),
        }
    }

    pub fn get(&self, key: HandleKey) -> Option<Arc<D::Handle>> {
        let mut state = lock(&self.state);
        state.uses += 1;
        let uses = state.uses;
        let cached = state.handles.get_mut(&key)?;
        cached.used = uses;
        Some(cached.handle.clone())
    }

    pub fn insert(&self, key: HandleKey, handle: Arc<D::Handle>) {
        self.insert_of(key, handle, None);
    }

    /// A directory that a transaction has staged. Its handle is dropped when the transaction ends:
    /// if that is by an abort, the directory is gone.
    pub fn insert_staged(&self, directory: Identity, handle: Arc<D::Handle>, of: TransactionId) {
        self.insert_of(HandleKey::Directory(directory), handle, Some(of));
    }

    fn insert_of(&self, key: HandleKey, handle: Arc<D::Handle>, of: Option<TransactionId>) {
        let mut state = lock(&self.state);
        state.uses += 1;
        let used = state.uses;
        state.handles.insert(key, Cached { handle, used, of });
        if state.handles.len() > self.handles_max {
            state.evict_quarter();
        }
    }

    /// Keeps a handle until [`release_held`](Self::release_held); false if
    /// there are too many.
    pub fn hold(
        &self,
        identity: Identity,
        handle: Arc<D::Handle>,
        target: Option<Vec<u8>>,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.held.len() >= self.handles_max / 4 {
            return false;
        }
        state.held.insert(identity, Held { handle, target });
        true
    }

    pub fn held(&self, identity: Identity) -> Option<Arc<D::Handle>> {
        let state = lock(&self.state);
        state.held.get(&identity).map(|held| held.handle.clone())
    }

    /// The target of a symbolic link that is held.
    pub fn held_target(&self, identity: Identity) -> Option<Vec<u8>> {
        lock(&self.state).held.get(&identity)?.target.clone()
    }

    /// Closes the handles that only older snapshots needed. Call it once no snapshot
    /// is open.
    pub fn release_held(&self) {
        let mut state = lock(&self.state);
        state.held.clear();
        match std::mem::replace(&mut state.gone, Gone::These(Vec::new())) {
            Gone::These(gone) => gone
                .into_iter()
                .for_each(|identity| state.remove_object(identity)),
            Gone::Many => state.remove_base(),
        }
    }

    pub fn remove(&self, key: HandleKey) {
        lock(&self.state).handles.remove(&key);
    }

    /// Drops the handles of an object that leaves the base, because a handle keeps the
    /// object's space on the disk in use. Older snapshots open the object in limbo, or
    /// it is held. A reader at this moment may put a handle back, which then stays
    /// until no snapshot is open.
    pub fn forget(&self, identity: Identity) {
        let mut state = lock(&self.state);
        state.remove_object(identity);
        match &mut state.gone {
            Gone::These(gone) if gone.len() < GONE_MAX => gone.push(identity),
            gone => *gone = Gone::Many,
        }
    }

    /// Drops all handles of base objects. Call it once no snapshot is open and limbo
    /// is empty.
    pub fn forget_base(&self) {
        lock(&self.state).remove_base();
    }

    pub fn remove_transaction(&self, id: TransactionId) {
        let of_it = |key: &HandleKey, cached: &Cached<D::Handle>| match key {
            HandleKey::Stage(of) | HandleKey::Staged(of, _) => *of == id,
            HandleKey::Directory(_) | HandleKey::Contents(_) => cached.of == Some(id),
        };
        let mut state = lock(&self.state);
        state.handles.retain(|key, cached| !of_it(key, cached));
    }
}

impl<D: Disk> State<D> {
    fn remove_object(&mut self, identity: Identity) {
        self.handles.remove(&HandleKey::Contents(identity));
        self.handles.remove(&HandleKey::Directory(identity));
    }

    /// Drops all handles except those of staged files.
    fn remove_base(&mut self) {
        let is_staged =
            |key: &HandleKey| matches!(key, HandleKey::Stage(_) | HandleKey::Staged(..));
        self.handles.retain(|key, _| is_staged(key));
    }

    fn evict_quarter(&mut self) {
        let mut uses: Vec<u64> = self.handles.values().map(|cached| cached.used).collect();
        let quarter = uses.len() / 4;
        let (_, &mut oldest_kept, _) = uses.select_nth_unstable(quarter);
        self.handles.retain(|_, cached| cached.used >= oldest_kept);
    }
}
