//! Brings single files back in a transaction that has other changes as well.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use super::{Outcome, Restore};
use crate::base::Base;
use crate::database;
use crate::error::UndoError;
use crate::ids::NodeId;
use crate::progress::Unreported;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::undo::io;
use crate::view::View;

impl<D: Disk> Store<D> {
    /// Makes each of these paths what it is in a view of the past. Refuses one at which there is or
    /// was a directory or a file with several names or a part of a database, or whose directory
    /// is not the one that it was.
    pub(in crate::undo) fn restore_files(
        &self,
        past: &Transaction<D>,
        transaction: &Transaction<D>,
        paths: &[Vec<u8>],
        refused: impl Fn(&[u8]) -> UndoError,
    ) -> Outcome<()> {
        self.restoring(past, transaction, &mut Unreported, |restore| {
            for path in paths {
                let restored = restore.file(path).map_err(|errno| io(path, errno))?;
                if !restored {
                    return Err(refused(path));
                }
            }
            Ok(())
        })
    }
}

impl<D: Disk> Restore<'_, D> {
    /// Returns false if it is not one file alone.
    fn file(&mut self, path: &[u8]) -> Result<bool> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        let (then, now) = (resolved(self.then, above)?, resolved(self.now, above)?);
        let (Some((then, base)), Some((now, base_now))) = (then, now) else {
            return Ok(false);
        };
        if base.serial != base_now.serial {
            return Ok(false);
        }
        for member in database::family(name.as_bytes()) {
            let member = Name::new(&member).map_err(|_| Errno::INVAL)?;
            if member != name && self.now.child(now, &member)?.is_some() {
                return Ok(false);
            }
        }
        let wanted = self.then.child(then, &name)?;
        let present = self.now.child(now, &name)?;
        let is_wanted = wanted.is_none_or(|node| is_single(self.then, node));
        if !is_wanted || present.is_some_and(|node| !is_single(self.now, node)) {
            return Ok(false);
        }
        self.entry(now, &name, wanted)?;
        Ok(true)
    }
}

fn resolved<D: Disk>(view: &mut View<D>, path: &[u8]) -> Result<Option<(NodeId, Arc<Base>)>> {
    let Some(node) = view.resolve(path)? else {
        return Ok(None);
    };
    let base = view.node(node)?.base.clone();
    Ok(base
        .filter(|base| base.kind == Kind::Directory)
        .map(|base| (node, base)))
}

fn is_single<D: Disk>(view: &mut View<D>, node: NodeId) -> bool {
    let is_directory = view
        .node(node)
        .is_ok_and(|node| node.kind == Kind::Directory);
    let attributes = view.attributes(node);
    !is_directory && attributes.is_ok_and(|attributes| attributes.links <= 1)
}
