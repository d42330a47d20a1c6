//! Finds the commit that changed a part that a lock would cover.

use super::target::Extent;
use crate::base::Base;
use crate::ids::Sequence;

/// Returns the newest commit that changed a part of an object, as far as open
/// snapshots need to know.
pub(crate) fn newest(base: &Base, extent: &Extent) -> Option<Sequence> {
    let state = base.state();
    let changed = state.changed()?;
    let part = match extent {
        Extent::Pages(start, end) => changed.pages_changed(*start, *end).max(changed.length),
        Extent::Entry(name) => changed.names.get(name).copied(),
        Extent::Attributes | Extent::Leave => changed.attributes,
        Extent::Object | Extent::Subtree => changed
            .anything()
            .max(changed.names.values().copied().max()),
    };
    part.max(changed.removed).max(changed.unnamed)
}
