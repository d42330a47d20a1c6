//! Checks the objects that get names back: each must be as the undone commits left it, and where
//! they left it.
//!
//! Another commit may have brought it back before, or have moved it out of a removed directory.

use atomdir_disk::{Disk, Errno, Identity, Kind, Result};
use atomdir_types::TreePath;

use crate::base::Place;
use crate::error::ConflictKind;
use crate::ids::{NodeId, Sequence};
use crate::undo::changes::NameUndone;
use crate::undo::find::Fate;
use crate::undo::reverse::Reverse;
use crate::undo::untouched::Left;

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

    /// Whether an object is in limbo.
    pub(super) fn is_removed(&mut self, object: Identity) -> Result<bool> {
        let base = self.finder.find(self.view, object)?;
        Ok(base.is_some_and(|base| self.is_in_limbo(&base)))
    }

    /// Checks an object that goes from the tree, and returns how it was left when an undone commit
    /// brought it there. `None` if none did: others had put it where it would be lost, in a
    /// directory that goes as well.
    pub(super) fn check_origin(&mut self, identity: Identity, path: &TreePath) -> Option<Left> {
        let changes = self.changes;
        let mut made = self.made(identity);
        for key in self.finder.returning_keys(&identity) {
            if let Some(by) = changes.names[key].put_by {
                self.conflict(path, ConflictKind::Entry, Some(by));
                return None;
            }
            made = self.made_with(key.0).unwrap_or(made);
        }
        if changes.is_new(identity) {
            return Some(made);
        }
        // It was in the tree before, and has lost its other names since, or the directory in which
        // it was.
        let by = self.lost_by(identity);
        self.conflict(path, ConflictKind::Removed, by);
        None
    }

    /// How the first undone commit that mentions an object has left it.
    fn made(&self, identity: Identity) -> Left {
        let first = self.changes.first_touch(identity);
        first.map_or_else(Left::default, |touch| self.left(touch))
    }

    /// How what is in a directory was left when an undone commit brought the directory into the
    /// tree, perhaps within another one.
    fn made_with(&self, directory: Identity) -> Option<Left> {
        let changes = self.changes;
        let above = changes.with_what_is_above(directory);
        let mut new = above.take_while(|one| changes.is_new(*one));
        let first = new.find_map(|one| changes.first_touch(one));
        first.map(|touch| self.left(touch).of_contents())
    }

    /// The newest commit that took a name from the object, or removed a directory in which it was.
    fn lost_by(&self, identity: Identity) -> Option<Sequence> {
        let changes = self.changes;
        let mut newest = changes.unnamed_by.get(&identity).copied();
        for (directory, _) in self.finder.returning_keys(&identity) {
            let mut above = changes.with_what_is_above(*directory);
            newest = newest.max(above.find_map(|one| changes.removed_by.get(&one).copied()));
        }
        // A directory would lie below itself.
        let mut keys = self.finder.returning_keys(&identity).into_iter();
        newest.or_else(|| keys.find_map(|(directory, _)| self.kept_by(*directory, None)))
    }

    /// The commit that has moved a directory so that it would lie below itself. `None` if an outside
    /// writer has removed the directory.
    pub(super) fn moved_by(&mut self, directory: Identity) -> Result<Option<Sequence>> {
        let base = self.finder.find(self.view, directory)?;
        let is_in_tree = base.is_some_and(|base| !self.is_in_limbo(&base));
        Ok(is_in_tree.then(|| self.kept_by(directory, None)).flatten())
    }

    /// Checks what outside writers had put into directories that go, before an undone commit took it
    /// out of there.
    pub(super) fn check_put_from_outside(&mut self) -> Result<()> {
        let changes = self.changes;
        for ((directory, _), name) in &changes.names {
            let Some(before) = name.before.filter(|_| name.put_by.is_none()) else {
                continue;
            };
            if self.finder.fate(self.view, *directory)? == Fate::Goes
                && self.came_later(before, *directory)
                && self.finder.fate(self.view, before)? != Fate::Lives
                && !self.is_removed(*directory)?
            {
                self.conflict(&name.path, ConflictKind::Entry, None);
            }
        }
        Ok(())
    }

    /// Checks the removed directories that come back: nobody may have brought back alone what was
    /// in them, or have brought them back, changed names in them and removed them again.
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
        for (directory, by) in changes.changed_since_removed() {
            if self.is_removed(directory)? && self.finder.fate(self.view, directory)? == Fate::Lives
            {
                let path = changes.path_of(directory).unwrap_or_default();
                self.conflict(&path, ConflictKind::Returned, Some(by));
            }
        }
        Ok(())
    }
}
