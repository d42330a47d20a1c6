//! What gets names back: it is as the undone commits left it, and where they left it.
//!
//! Another commit may have brought it back before, or have moved it out of a removed directory.

use atomdir_disk::{Disk, Errno, Identity, Kind, Result};

use crate::base::Place;
use crate::error::{ConflictKind, UndoError};
use crate::ids::NodeId;
use crate::undo::changes::NameUndone;
use crate::undo::find::Fate;
use crate::undo::reverse::Reverse;
use crate::undo::untouched::Left;

type Outcome<T> = std::result::Result<T, UndoError>;

impl<D: Disk> Reverse<'_, D> {
    /// The node of an object that gets a name back, if it is where the undone commits left it.
    pub(super) fn returning(
        &mut self,
        name: &NameUndone,
        identity: Identity,
    ) -> Result<Option<NodeId>> {
        let Some(node) = self.finder.returning_node(self.view, identity)? else {
            self.conflict(&name.path, ConflictKind::Removed, None);
            return Ok(None);
        };
        if !self.has_other_name(node)? && !self.has_several_names_again(node, identity)? {
            return Ok(Some(node));
        }
        let by = self.changes.named_by.get(&identity).copied();
        self.conflict(&name.path, ConflictKind::Returned, by);
        Ok(None)
    }

    /// Whether a directory that gets a name back would keep another.
    fn has_other_name(&self, node: NodeId) -> Result<bool> {
        let node = self.view.node(node)?;
        let base = node.base.as_ref();
        let base = base.filter(|base| base.kind == Kind::Directory && !self.is_in_limbo(base));
        let Some(base) = base else {
            return Ok(false);
        };
        let place = base.state().place.clone();
        let Place::Entry { parent, name } = place else {
            return Err(Errno::STALE);
        };
        let leaving = self.changes.names.get(&(parent.identity(), name));
        Ok(leaving.is_none_or(|name| name.after != Some(base.identity())))
    }

    /// Whether a directory would get several names back: another commit has moved it between two
    /// of the undone ones.
    fn has_several_names_again(&mut self, node: NodeId, identity: Identity) -> Result<bool> {
        if self.view.node(node)?.kind != Kind::Directory {
            return Ok(false);
        }
        let mut names = 0;
        for (directory, _) in self.finder.returning_keys(&identity) {
            names += u32::from(self.finder.fate(self.view, *directory)? == Fate::Lives);
        }
        Ok(names > 1)
    }

    /// Whether a directory is in limbo.
    pub(super) fn is_removed(&mut self, directory: Identity) -> Result<bool> {
        let base = self.finder.find(self.view, directory)?;
        Ok(base.is_some_and(|base| self.is_in_limbo(&base)))
    }

    /// Checks an object that goes from the tree, and returns how it was left when an undone commit
    /// brought it there. `None` if none did: it was in a directory that others have removed since
    /// without it, or others had put it there. It would be lost in a directory that goes as well.
    pub(super) fn check_origin(
        &mut self,
        identity: Identity,
        path: &[u8],
    ) -> Outcome<Option<Left>> {
        let changes = self.changes;
        let mut made = self.made(identity);
        for key in self.finder.returning_keys(&identity) {
            let name = &changes.names[key];
            let arrived = changes.arrived.get(&key.0).copied();
            let is_older = arrived.is_some_and(|arrived| arrived > name.first);
            let removed_by = changes.removed_by.get(&key.0).copied();
            if let Some(by) = name.put_by {
                self.conflict(path, ConflictKind::Entry, Some(by));
                return Ok(None);
            }
            if is_older {
                self.conflict(path, ConflictKind::Removed, removed_by);
                return Ok(None);
            }
            if arrived.is_some() {
                made = self.made(key.0);
            }
            if arrived.is_some() && made.is_before(identity) {
                self.conflict(path, ConflictKind::Entry, None);
                return Ok(None);
            }
        }
        Ok(Some(made))
    }

    /// Checks the removed directories that come back: nobody may have brought back alone what was
    /// in them.
    pub(super) fn check_taken_out(&mut self) -> Result<()> {
        let changes = self.changes;
        for ((directory, name), (_, by)) in &changes.taken_out {
            let is_undone = changes.names.contains_key(&(*directory, name.clone()));
            if is_undone || !self.is_removed(*directory)? {
                continue;
            }
            if self.finder.fate(self.view, *directory)? == Fate::Lives {
                let path = changes.path_of(*directory).unwrap_or_default();
                self.conflict(&path, ConflictKind::Returned, Some(*by));
            }
        }
        Ok(())
    }
}
