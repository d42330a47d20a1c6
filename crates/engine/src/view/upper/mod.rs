//! Makes a view of the changes in an overlay's upper layer.
//!
//! A transaction with a native view works in an overlay of the kernel's. The lower
//! layer is the snapshot, served read-only, and the upper layer is a directory of the
//! staging area. When the transaction's programs have ended, `walk` reads the upper
//! layer, and `lost` finds the objects that have lost names. Only then does `moves`
//! move anything. The result is a view like any other, with the upper layer's new
//! objects as its staged ones.
//!
//! Invariants
//! 1. Merely looking at the layer changes nothing on disk, so it can be done while
//!    programs still work in the overlay, and it can fail without harm. An object
//!    that they remove meanwhile is left out, and a directory that goes before it is read is empty. Only
//!    a takeover opens directories that are closed to their owner.
//! 2. An object of the upper layer with an origin is the object of the base that it
//!    was copied from. Its contents count as written in full, unless they are still
//!    those of the lower file (metacopy).
//! 3. A new directory stays as it is, with everything new in it. The new objects stay
//!    in place below it, so the commit moves it by one rename.
//! 4. An object that is new or copied in a directory of the base gets a slot of the
//!    staging directory.
//! 5. A takeover that fails leaves the layer as it was, so it can be tried again. If that cannot be,
//!    all later ones fail.
//! 6. While programs work in the overlay, nobody looks at the layer with the view locked. The
//!    kernel holds the layer's directories locked while it copies a file up, and then waits for
//!    the lower layer's answers, which need the view.
//!
//! `over_base` is for a transaction that holds the whole store. Its lower layer is the base itself.

mod barred;
mod copied;
mod deviations;
mod holes;
mod index;
mod lost;
mod lower;
mod moves;
mod nested;
mod over_base;
mod overlay_attributes;
mod seen;
mod touched;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Name, NewNode, Owner, Result, Stat, Timestamp};
use atomdir_types::Deviation;

use super::View;
use super::dress::dress;
use super::shown::Shown;
use crate::base::handles::HandleKey;
use crate::control::PRIVATE_DIRECTORY;
use crate::ids::NodeId;
use crate::names;
pub(crate) use barred::Bars;
use copied::Removed;
use moves::{CarryOutError, Moves};
use over_base::Unmatched;
use overlay_attributes::OverlayAttributes;
pub use overlay_attributes::OverlayPrefix;
pub(crate) use seen::UpperState;

impl<D: Disk> View<D> {
    /// Makes the directories that the overlay's mount needs.
    pub(crate) fn prepare_upper(&mut self) -> Result<()> {
        let stage = self.own_stage()?;
        let disk = &self.core.disk;
        for name in [names::UPPER, names::WORK] {
            let name = names::fixed(name);
            disk.make(&stage, &name, &NewNode::Directory, PRIVATE_DIRECTORY)?;
        }
        // The overlay's root has the attributes of its upper layer's root.
        let root = self.snapshot_stat(&self.core.root_base)?;
        let xattrs = self.snapshot().xattrs(&self.core.root_base)?;
        let upper = disk.open(&stage, &names::fixed(names::UPPER), Access::Directory)?;
        if self.over_base {
            self.hide_control(&upper)?;
        }
        dress(&self.core, &upper, root.kind, root.attributes, &xattrs)?;
        if self.over_base {
            return Ok(());
        }
        if OverlayPrefix::of(&self.core.options.privileges) == OverlayPrefix::User {
            self.bars = Bars::for_user(root.attributes.owner);
        }
        self.begin_to_show(&root, &xattrs);
        Ok(())
    }

    /// A view that reads the upper layer, while this one goes on serving the lower layer.
    pub(crate) fn reader_of_upper(&mut self) -> Result<View<D>> {
        self.stage()?;
        let mut reader = View::new(self.core.clone(), self.id, self.at);
        reader.has_stage = true;
        reader.restricted_to = self.restricted_to.clone();
        reader.shown = self.shown.clone();
        reader.over_base = self.over_base;
        reader.old_texts = self.old_texts.clone();
        reader.reads = self.reads.as_ref().map(|_| Default::default());
        Ok(reader)
    }

    /// For a [reader](View::reader_of_upper): returns the view with the upper layer's present
    /// changes. Changes nothing.
    pub(crate) fn look_at_upper(
        &self,
        lower: &dyn LowerView<D>,
        began: Timestamp,
    ) -> Result<View<D>> {
        let read = self.read_upper(lower, began, Purpose::Look, None)?;
        read.moves.close_layer(&read.view);
        Ok(read.view)
    }

    /// Returns the view that replaces the overlay, and what overlayfs has done otherwise than a
    /// plain directory would. `began` is the transaction's begin.
    pub(crate) fn take_over_upper(
        &mut self,
        began: Timestamp,
    ) -> Result<(View<D>, Vec<Deviation>)> {
        self.write_ahead_what_is_found();
        if self.is_torn {
            return Err(Errno::IO);
        }
        self.stage()?;
        let read = self.read_upper(self, began, Purpose::TakeOver, None)?;
        let Read {
            mut view,
            moves,
            mut deviations,
            ..
        } = read;
        deviations.extend(self.bars.deviations());
        deviations.sort_by(|one, other| (one.kind, &one.path).cmp(&(other.kind, &other.path)));
        view.is_written_ahead = self.is_written_ahead;
        view.resolved = Arc::new(self.resolved.without_names());
        if let Err(CarryOutError { errno, is_undone }) = moves.carry_out(&mut view) {
            moves.close_again(&view);
            moves.close_layer(&view);
            self.is_torn = !is_undone;
            return Err(errno);
        }
        view.has_placed = true;
        moves.close_layer(&view);
        view.reads = self.reads.take();
        view.shown = None;
        view.over_base = false;
        view.resolve_changed();
        Ok((view, deviations))
    }

    /// With `seen`, also notes the objects in the layer.
    fn read_upper(
        &self,
        lower: &dyn LowerView<D>,
        began: Timestamp,
        purpose: Purpose,
        seen: Option<UpperState>,
    ) -> Result<Read<D>> {
        let stage = self.open_stage()?;
        let upper = names::fixed(names::UPPER);
        let stat = self.core.disk.stat_at(&stage, &upper)?;
        let root = self.shown_stat(&self.core.root_base)?;
        let mut view = View::new(self.core.clone(), self.id, self.at);
        view.has_stage = true;
        view.old_texts = self.old_texts.clone();
        view.over_base = self.over_base;
        view.shown = match self.over_base {
            true => Some(Shown::of_base_since(began)),
            false => self.shown.clone(),
        };
        view.node_mut(NodeId::ROOT)?.reported = Some((root.attributes.mode, root.attributes.owner));
        let mut reading = Reading {
            lower,
            overlay_prefix: OverlayPrefix::of(&view.core.options.privileges),
            new: view,
            began,
            is_live: purpose == Purpose::Look,
            opens_up: purpose == Purpose::TakeOver && !self.core.options.privileges.all,
            moves: Moves::default(),
            seen,
            with_names: HashMap::new(),
            own: root.attributes.owner,
            removed: Vec::new(),
            deviations: Vec::new(),
            to_visit: Vec::new(),
            unmatched: Unmatched::default(),
        };
        reading.moves.layer.insert(
            NodeId::ROOT.into(),
            InLayer {
                parent: None,
                name: upper,
                identity: stat.identity,
            },
        );
        if let Err(errno) = reading.read(stat) {
            reading.moves.close_again(&reading.new);
            reading.moves.close_layer(&reading.new);
            return Err(errno);
        }
        Ok(Read {
            view: reading.new,
            moves: reading.moves,
            seen: reading.seen,
            deviations: reading.deviations,
        })
    }
}

/// An upper layer that was read.
struct Read<D: Disk> {
    view: View<D>,
    moves: Moves,
    seen: Option<UpperState>,
    deviations: Vec<Deviation>,
}

/// The view that serves as the lower layer.
pub(crate) trait LowerView<D: Disk> {
    fn look(&self, look: &mut dyn FnMut(&View<D>));
}

/// For a view that serves nobody any more.
impl<D: Disk> LowerView<D> for View<D> {
    fn look(&self, look: &mut dyn FnMut(&View<D>)) {
        look(self);
    }
}

/// Why the layer is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Programs may still work in it.
    Look,
    /// They have ended, and its objects become those of a view.
    TakeOver,
}

/// An upper layer while it is being made into a view.
struct Reading<'a, D: Disk> {
    lower: &'a dyn LowerView<D>,
    new: View<D>,
    overlay_prefix: OverlayPrefix,
    began: Timestamp,
    /// Programs may still work in the layer.
    is_live: bool,
    /// No program works in the layer any more, so directories closed to their owner
    /// may be opened.
    opens_up: bool,
    moves: Moves,
    seen: Option<UpperState>,
    /// New files with several names, by inode.
    with_names: HashMap<u64, NodeId>,
    /// The root directory's owner and group, which are an ordinary user's own if they have the
    /// overlay.
    own: Owner,
    removed: Vec<Removed>,
    deviations: Vec<Deviation>,
    /// Directories still to be read, with their overlay attributes.
    to_visit: Vec<(NodeId, Stat, OverlayAttributes)>,
    unmatched: Unmatched,
}

/// A directory of the upper layer, or one of overlayfs's own, which are beside the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LayerDirectory {
    Node(NodeId),
    Work,
    /// In the working directory.
    Index,
}

impl From<NodeId> for LayerDirectory {
    fn from(id: NodeId) -> LayerDirectory {
        LayerDirectory::Node(id)
    }
}

/// A directory's place; the layer itself and the working directory have no parent.
struct InLayer {
    parent: Option<LayerDirectory>,
    name: Name,
    identity: Identity,
}

impl<D: Disk> Reading<'_, D> {
    fn read(&mut self, root: Stat) -> Result<()> {
        self.walk(root)?;
        self.match_left()?;
        if self.is_over_base() {
            self.doubt_new_names()?;
        }
        self.drop_lost_names()?;
        self.take_index()?;
        self.find_copied()
    }

    fn open(&self, directory: impl Into<LayerDirectory>) -> Result<Arc<D::Handle>> {
        open_in_layer(&self.new, &self.moves.layer, directory.into())
    }

    /// The found value, or `None` if programs have removed or replaced the object since its name
    /// was read.
    fn unless_gone<T>(&self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Err(errno) if self.is_live && is_gone(errno) => Ok(None),
            found => found.map(Some),
        }
    }

    fn is_new(&self, id: NodeId) -> Result<bool> {
        Ok(self.new.node(id)?.base.is_none())
    }
}

/// Whether an open by name fails so because the name is gone, or names an object of another kind.
fn is_gone(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::INVAL | Errno::NXIO
    )
}

fn open_in_layer<D: Disk>(
    view: &View<D>,
    layer: &HashMap<LayerDirectory, InLayer>,
    directory: LayerDirectory,
) -> Result<Arc<D::Handle>> {
    let at = layer.get(&directory).ok_or(Errno::STALE)?;
    let key = HandleKey::Directory(at.identity);
    if let Some(handle) = view.core.handles.get(key) {
        return Ok(handle);
    }
    let above = match at.parent {
        Some(parent) => open_in_layer(view, layer, parent)?,
        None => view.open_stage()?,
    };
    let handle = view.core.disk.open(&above, &at.name, Access::Directory)?;
    let handle = Arc::new(handle);
    let handles = &view.core.handles;
    handles.insert_staged(at.identity, handle.clone(), view.id);
    Ok(handle)
}
