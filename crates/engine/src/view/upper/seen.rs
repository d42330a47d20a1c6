//! The state of an upper layer at one time. A later look can then find what programs have changed
//! in it since.
//!
//! A directory of the snapshot that overlayfs has copied, because something in it has
//! changed, counts only by its own attributes.

use std::collections::BTreeMap;

use atomdir_disk::{Disk, Identity, Kind, Owner, Stat, Timestamp};

use super::Reading;
use super::walk::Item;
use crate::view::merge::{TouchKind, TouchedPath};

/// The objects of an upper layer, by their paths in the view.
#[derive(Default)]
pub(crate) struct UpperState(BTreeMap<Vec<u8>, ObjectState>);

#[derive(PartialEq, Eq)]
struct ObjectState {
    identity: Identity,
    kind: Kind,
    mode: u32,
    owner: Owner,
    /// `None` for a directory: what happens in that is noted there.
    written: Option<(u64, Timestamp, Timestamp)>,
    /// The base object that this is a copy of.
    serial: Option<u64>,
    /// A directory through which that of the same path in the snapshot shows.
    is_merged: bool,
}

impl UpperState {
    /// The changes since `before`.
    pub fn since(&self, before: &UpperState) -> Vec<TouchedPath> {
        let mut changed = Vec::new();
        for (path, now) in &self.0 {
            let old = before.0.get(path);
            let kind = match old {
                Some(old) if old == now => continue,
                Some(old) if old.is_merged && now.is_merged => TouchKind::Attributes,
                None if now.is_merged => TouchKind::Attributes,
                _ => TouchKind::Tree,
            };
            changed.push(TouchedPath {
                path: path.clone(),
                kind,
                serial: now.serial.or(old.and_then(|old| old.serial)),
            });
        }
        let gone = before
            .0
            .iter()
            .filter(|(path, _)| !self.0.contains_key(*path));
        changed.extend(gone.map(|(path, old)| TouchedPath {
            path: path.clone(),
            kind: TouchKind::Tree,
            serial: old.serial,
        }));
        changed
    }
}

impl<D: Disk> Reading<'_, D> {
    pub(super) fn see(&mut self, item: &Item, serial: Option<u64>, is_merged: bool) {
        if self.seen.is_none() {
            return;
        }
        let Stat {
            identity,
            kind,
            attributes,
            length,
            changed,
            ..
        } = item.stat;
        let times = (length, attributes.times.modified, changed);
        let state = ObjectState {
            identity,
            kind,
            mode: attributes.mode,
            owner: attributes.owner,
            written: (kind != Kind::Directory).then_some(times),
            serial,
            is_merged,
        };
        let mut names = vec![item.name.as_bytes()];
        let mut at = self.moves.layer.get(&item.parent.into());
        while let Some(place) = at
            && let Some(above) = place.parent
        {
            names.push(place.name.as_bytes());
            at = self.moves.layer.get(&above);
        }
        names.reverse();
        let path = names.join(&b'/');
        if let Some(seen) = &mut self.seen {
            seen.0.insert(path, state);
        }
    }
}
