//! How one object differs from what it was.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomdir_disk::{Kind, Owner, Stat};
use atomdir_format::record::AttributesChange;
use atomdir_types::TreePath;

use crate::base::snapshot::PAGE;
use crate::base::{Base, Xattrs};
use crate::ids::NodeId;
use crate::ranges::RangeSet;
use crate::write_set::{ContentsWrite, ObjectWrite};

pub(super) fn object_write(base: &Arc<Base>, attributes: AttributesChange) -> ObjectWrite {
    ObjectWrite {
        node: NodeId::ROOT,
        base: base.clone(),
        stamp: None,
        reported: None,
        path: TreePath::default(),
        home: None,
        attributes,
        is_implied: false,
        xattrs: Vec::new(),
        contents: None,
    }
}

pub(super) fn attributes_change(old: &Stat, now: &Stat) -> AttributesChange {
    let (before, after) = (&old.attributes, &now.attributes);
    let Owner { user, group } = after.owner;
    let is_file = now.kind != Kind::Directory;
    let (modified, accessed) = (after.times.modified, None);
    AttributesChange {
        mode: (after.mode != before.mode).then_some(after.mode),
        user: (user != before.owner.user).then_some(user),
        group: (group != before.owner.group).then_some(group),
        accessed,
        // Those of a directory change with its entries.
        modified: (is_file && modified != before.times.modified).then_some(modified),
    }
}

pub(super) fn xattrs_change(old: &Xattrs, now: &Xattrs) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let value = |of: &Xattrs, name: &[u8]| {
        let found = of.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    let names: BTreeSet<&Vec<u8>> = old.iter().chain(now).map(|(name, _)| name).collect();
    let changed = names
        .into_iter()
        .filter(|name| value(old, name) != value(now, name));
    changed
        .map(|name| (name.clone(), value(now, name)))
        .collect()
}

pub(super) fn old_xattrs(
    old: &Xattrs,
    changes: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let former = changes.iter().map(|(name, _)| {
        let found = old.iter().find(|(known, _)| known == name);
        (name.clone(), found.map(|(_, value)| value.clone()))
    });
    former.collect()
}

pub(super) fn contents(old: &Stat, now: &Stat, kept: &RangeSet) -> Option<ContentsWrite> {
    let mut pages = RangeSet::default();
    let end = now.length.div_ceil(PAGE);
    let written = kept.iter().map(|(start, until)| (start, until.min(end)));
    let added = (now.length > old.length).then_some((old.length / PAGE, end));
    for (start, end) in written.chain(added).filter(|(start, end)| start < end) {
        pages.insert(start, end);
    }
    if kept.total() == 0 && now.length == old.length {
        return None;
    }
    Some(ContentsWrite {
        slot: 0,
        pages,
        length: (now.length != old.length).then_some(now.length),
        keep: old.length.min(now.length),
        replacement: None,
        is_carried: false,
        differing: None,
        is_used: true,
    })
}
