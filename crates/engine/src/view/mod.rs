//! One transaction's view: its tree, as the difference to its snapshot.
//!
//! `node` holds the shape, `tree` finds and keeps nodes, and each group of operations has a
//! module. `fork` makes savepoints and nested views, `refresh` lays the difference over a newer
//! snapshot, `log` keeps a view on disk for the next service, `read_set` records what a serializable
//! transaction has read, `old_texts` remembers what changed files held before, `resolved` keeps names to the objects that they have led to, `shown` is what
//! a lower layer has shown, `sparse` knows the holes of files, and `upper` makes a view of an
//! overlay's upper layer. Each of these states the invariants that it keeps.
//!
//! Invariant: nothing here changes the base.

mod access;
mod alike;
mod allocation;
mod attributes;
mod changes;
mod contents;
pub(crate) mod dress;
mod fork;
pub(crate) mod log;
pub(crate) mod merge;
mod namespace;
pub(crate) mod node;
mod nodes;
mod numbers;
pub(crate) mod old_texts;
pub(crate) mod part;
pub(crate) mod paths;
mod put_back;
pub(crate) mod read_set;
mod reads;
mod refresh;
mod resolved;
mod settled;
mod shown;
mod sparse;
mod staging;
mod take_back;
mod tree;
mod types;
mod upper;
mod watch;
mod xattrs;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Timestamp};

use fork::Forks;
pub use fork::Outdated;
use merge::Begun;
pub(crate) use merge::conflicts;
pub(crate) use namespace::LINKS_MAX;
use nodes::Nodes;
use numbers::Numbers;
use old_texts::OldTexts;
use shown::Shown;
use sparse::HolesRead;
pub(crate) use take_back::NameChange;
pub(crate) use types::Joint;
pub use types::{Caller, Entry, ListEntry, NewNode, NodeAttributes, SetAttributes, SetTime};
pub(crate) use upper::LowerView;
pub use upper::OverlayPrefix;

use crate::base::Base;
use crate::base::ahead::LeansOn;
use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::landed::Landed;
use crate::base::present;
use crate::base::snapshot::Snapshot;
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::view::log::ViewLog;
use crate::view::read_set::ReadSet;
use crate::view::resolved::Resolved;
use crate::view::upper::Bars;

pub(crate) struct View<D: Disk> {
    pub core: Arc<Core<D>>,
    pub id: TransactionId,
    /// The newest commit that the snapshot holds.
    pub at: Sequence,
    /// The transaction's own commits since, which the snapshot holds as well.
    pub landed: Arc<Landed>,
    /// The names that it has resolved in its snapshot. Nested views share them, forks have a copy.
    resolved: Arc<Resolved>,
    /// What it has seen of commits that are not in the base. Nested views share it, forks have a copy.
    pub leans_on: Arc<LeansOn>,
    pub old_texts: OldTexts,
    pub nodes: Nodes,
    /// How often the kernel has looked up each node and not yet forgotten it.
    lookups: Vec<u64>,
    holes_read: HolesRead,
    /// How often each id has been used.
    generations: Vec<u32>,
    /// Ids that may be used again.
    free: Vec<NodeId>,
    /// Lower ids are not used again: somebody may know them from before a refresh.
    reusable_from: NodeId,
    /// Staged objects may lie in others' directories: an attempt to commit has put them there, or
    /// an overlay.
    has_placed: bool,
    numbers: Arc<Numbers>,
    forks: Forks,
    /// The outermost transaction, which owns the staging directory.
    stage_of: TransactionId,
    /// `Some` for a serializable transaction.
    pub reads: Option<ReadSet>,
    /// The program declares its reads of files itself. So the kernel's own requests are not noted:
    /// it asks for more, because it reads ahead and looks at attributes.
    pub has_declared_reads: bool,
    has_stage: bool,
    /// The new objects are in an overlay's upper layer, where they are only looked at, and not yet
    /// in the places that `Own::staged` names.
    pub is_layer: bool,
    is_written_ahead: bool,
    /// This view is the lower layer of an overlay. The kernel then finds files with several
    /// names by their nodes, so these must stay.
    pub lower: bool,
    /// The overlay's lower layer is the base itself, and not this view.
    pub over_base: bool,
    pub bars: Bars,
    /// A part of the overlay's upper layer has been taken over, and the rest cannot be.
    is_torn: bool,
    /// For a lower layer, and views that read the upper layer over it.
    shown: Option<Shown>,
    /// For each nested transaction, the state of the overlay when it began.
    begun_over: BTreeMap<TransactionId, Begun>,
    /// The view is read-only: every call that would change it fails with `EROFS`.
    pub frozen: bool,
    /// It is committed together with transactions of other stores (`commit::in_doubt`).
    pub joint: Option<Joint>,
    /// The commit lock is held, so no read may settle (`base::on_the_way`).
    pub is_validated: bool,
    /// The user whose present rights in the base limit every read of it and the commit, if
    /// the service has other rights (`base/present.rs`).
    pub restricted_to: Option<Credentials>,
    /// Objects that an undo brings back from limbo, by serial.
    pub restored: HashSet<u64>,
    /// New objects that overlayfs has copied from old ones, which the transaction has moved or linked.
    pub made_of_old: HashSet<NodeId>,
    /// Files that an undo gives another inode: the last one, and the one from limbo.
    pub successions: Vec<(Arc<Base>, Arc<Base>)>,
    /// The view log, from which the next service restores the view if the transaction survives.
    pub log: Option<Box<ViewLog<D>>>,
}

impl<D: Disk> View<D> {
    pub fn new(core: Arc<Core<D>>, id: TransactionId, at: Sequence) -> View<D> {
        View {
            nodes: Nodes::new(&core.root_base),
            core,
            id,
            at,
            landed: Arc::default(),
            resolved: Arc::default(),
            leans_on: Arc::default(),
            old_texts: OldTexts::default(),
            lookups: Vec::new(),
            holes_read: HolesRead::default(),
            generations: Vec::new(),
            free: Vec::new(),
            reusable_from: NodeId::ROOT,
            has_placed: false,
            numbers: Arc::new(Numbers::new()),
            forks: Forks::default(),
            stage_of: id,
            reads: None,
            has_declared_reads: false,
            has_stage: false,
            is_layer: false,
            is_written_ahead: false,
            lower: false,
            over_base: false,
            bars: Bars::default(),
            is_torn: false,
            shown: None,
            begun_over: BTreeMap::new(),
            frozen: false,
            joint: None,
            is_validated: false,
            restricted_to: None,
            restored: HashSet::new(),
            made_of_old: HashSet::new(),
            successions: Vec::new(),
            log: None,
        }
    }

    pub fn snapshot(&self) -> Snapshot<'_, D> {
        let snapshot = Snapshot::with_landed(&self.core, self.at, &self.landed);
        snapshot.noting_in(&self.leans_on)
    }

    /// The point in the commit order at which the view reads an object.
    pub fn at_of(&self, base: &Base) -> Sequence {
        self.landed.object_at(base, self.at)
    }

    /// Fails unless the user may look at the base object as it is now.
    fn require_present(&self, base: &Arc<Base>, one_of: &[Permission]) -> atomdir_disk::Result<()> {
        match &self.restricted_to {
            Some(user) => present::require(&self.core, base, user, one_of),
            None => Ok(()),
        }
    }

    /// Fails unless the user may read a file's contents in the base as it is now, if the
    /// file is in the base.
    pub fn require_contents(&self, id: NodeId) -> atomdir_disk::Result<()> {
        if self.restricted_to.is_none() {
            return Ok(());
        }
        let node = self.node(id)?;
        let Some(base) = &node.base else {
            return Ok(());
        };
        match self.require_present(base, &present::CONTENTS) {
            // Outside writers have removed what the transaction has changed.
            Err(Errno::STALE) if node.contents().is_some() => Ok(()),
            required => required,
        }
    }

    /// Whether its commit may be validated while commits that it leans on are not in the base.
    pub fn may_lean(&self) -> bool {
        let is_undo = !self.restored.is_empty() || !self.successions.is_empty();
        self.restricted_to.is_none() && !is_undo && self.landed.is_empty()
    }

    pub fn snapshot_stat(&self, base: &Arc<Base>) -> atomdir_disk::Result<atomdir_disk::Stat> {
        self.snapshot().stat(base)
    }

    fn now(&self) -> Timestamp {
        self.core.options.clock.now()
    }

    pub fn changed_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.changed.iter().copied()
    }
}
