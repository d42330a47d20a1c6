//! What a commit changes, in the terms of locks.

use std::sync::Arc;

use super::target::{Extent, Target};
use crate::base::Base;
use crate::ids::Sequence;
use crate::write_set::{Object, WriteSet};

/// Every part of the base that the write set changes.
pub(crate) fn of(set: &WriteSet) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |base: &Arc<Base>, extent| {
        let base = base.clone();
        targets.push(Target { base, extent });
    };
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            add(directory, Extent::Entry(entry.name.clone()));
        }
        if let Some(before) = &entry.before {
            add(before, Extent::Subtree);
        }
        if let Some(Object::Base(after)) = &entry.after {
            add(after, Extent::Attributes);
        }
    }
    for object in set.objects.iter().filter(|object| !object.is_implied) {
        if object.writes_attributes() {
            add(&object.base, Extent::Attributes);
        }
        for (start, end) in object.contents.iter().flat_map(|one| one.written()) {
            add(&object.base, Extent::Pages(start, end));
        }
    }
    for removed in &set.removed_directories {
        add(&removed.base, Extent::Subtree);
    }
    for base in set.dying.values() {
        add(base, Extent::Subtree);
    }
    targets
}

/// The newest commit that changed a part of an object, as far as open
/// snapshots need to know.
pub(crate) fn newest(base: &Base, extent: &Extent) -> Option<Sequence> {
    let state = base.state();
    let changed = state.changed()?;
    let part = match extent {
        Extent::Pages(start, end) => changed.pages_changed(*start, *end).max(changed.length),
        Extent::Entry(name) => changed.names.get(name).copied(),
        Extent::Attributes => changed.attributes,
        Extent::Object | Extent::Subtree => changed
            .anything()
            .max(changed.names.values().copied().max()),
    };
    part.max(changed.removed).max(changed.unnamed)
}
