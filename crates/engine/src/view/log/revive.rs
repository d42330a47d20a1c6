//! Makes a view of what its log says.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Attachment, Disk, Errno, Kind, Name, Result};
use atomdir_format::header::StoreId;
use atomdir_format::view::{
    EntryDifference, ObjectPlace, ViewBegin, ViewBody, ViewChange, ViewNode, ViewObject, ViewOwn,
    ViewRecord, ViewStamp,
};

use super::Brought;
use super::stage_tree::StageTree;
use super::state::{
    DRESS_COMPLETE, DRESS_OUTDATED, TOUCHED_ACCESSED, TOUCHED_MODE, TOUCHED_MODIFIED, TOUCHED_OWNER,
};
use crate::base::core::Core;
use crate::base::older::Older;
use crate::base::snapshot::PAGE;
use crate::base::{Base, OwnStamp, Place, Stamp};
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::log::read_records;
use crate::names;
use crate::ranges::RangeSet;
use crate::view::node::{
    Contents, DirectoryDelta, Dress, EntryDelta, Node, Own, OwnBody, Staged, StagedParent, Touched,
};
use crate::view::nodes::Nodes;
use crate::view::numbers::Numbers;
use crate::view::{Joint, View};

/// A view as its log has it, without gaps: the last word about everything.
pub(crate) struct LoggedView {
    pub begin: ViewBegin,
    pub note: Vec<u8>,
    objects: Vec<ViewObject>,
    nodes: HashMap<u64, ViewNode>,
    /// By directory.
    entries: HashMap<u64, HashMap<Name, EntryDifference>>,
    dying: Vec<u64>,
    restored: Vec<u64>,
    successions: Vec<(u64, u64)>,
    brought: Vec<(u64, ViewStamp)>,
}

/// Why a log cannot be read.
pub(crate) enum Unread {
    /// The system has crashed, and nothing of the transaction had been flushed.
    NothingFlushed,
    /// The transaction has been aborted.
    Ended,
    Damaged(String),
}

/// Reads the log in a staging directory. `attachment` is the present one: unless it
/// continues the one under which the log was written, the log counts up to its last flush.
pub(crate) fn read<D: Disk>(
    disk: &D,
    stage: &D::Handle,
    store: StoreId,
    attachment: Option<Attachment>,
) -> std::result::Result<LoggedView, Unread> {
    let damaged = |error: &dyn std::fmt::Display| Unread::Damaged(error.to_string());
    let file = disk.open(stage, &names::fixed(names::VIEW), Access::Read);
    let file = file.map_err(|errno| damaged(&errno))?;
    let keep = |record: ViewRecord| Some(record.changes);
    let read = read_records(disk, &file, store, 1, keep).map_err(|error| damaged(&error))?;
    let mut records = read.records;
    if records
        .last()
        .is_some_and(|last| last.contains(&ViewChange::Ended))
    {
        // The staged files go next. Without this, a crash could bring back the log without them.
        let synced = disk.sync(&file);
        return Err(synced.map_or_else(|errno| damaged(&errno), |()| Unread::Ended));
    }
    let written_under = records.iter().flatten().find_map(|change| match change {
        ViewChange::Begin(begin) => begin.attachment,
        _ => None,
    });
    let continues = written_under
        .zip(attachment)
        .is_some_and(|(earlier, now)| now.continues(earlier));
    if !continues {
        let is_flush = |record: &Vec<ViewChange>| record.contains(&ViewChange::Flushed);
        let last = records.iter().rposition(is_flush);
        records.truncate(last.ok_or(Unread::NothingFlushed)? + 1);
    }
    let mut changes = records.into_iter().flatten();
    let Some(ViewChange::Begin(begin)) = changes.next() else {
        return Err(Unread::NothingFlushed);
    };
    let mut logged = LoggedView {
        begin: *begin,
        note: Vec::new(),
        objects: Vec::new(),
        nodes: HashMap::new(),
        entries: HashMap::new(),
        dying: Vec::new(),
        restored: Vec::new(),
        successions: Vec::new(),
        brought: Vec::new(),
    };
    changes.for_each(|change| logged.take(change));
    Ok(logged)
}

impl LoggedView {
    fn take(&mut self, change: ViewChange) {
        match change {
            ViewChange::Begin(begin) => self.begin = *begin,
            ViewChange::Note(note) => self.note = note,
            ViewChange::Object(object) => self.objects.push(object),
            ViewChange::Node(node) => self.take_node(*node),
            ViewChange::Gone { node } => {
                self.nodes.remove(&node);
                self.entries.remove(&node);
            }
            ViewChange::Entry {
                directory,
                name,
                difference,
            } => {
                let entries = self.entries.entry(directory).or_default();
                match difference {
                    Some(difference) => entries.insert(name, difference),
                    None => entries.remove(&name),
                };
            }
            ViewChange::Pages { node, start, end } => {
                let body = self.nodes.get_mut(&node).and_then(|node| node.own.as_mut());
                if let Some(ViewOwn {
                    body:
                        ViewBody::File {
                            pages: Some(pages), ..
                        },
                    ..
                }) = body
                {
                    pages.push((start, end));
                }
            }
            ViewChange::Dying { object } => self.dying.push(object),
            ViewChange::Restored { object } => self.restored.push(object),
            ViewChange::Succession { before, after } => self.successions.push((before, after)),
            ViewChange::Brought { object, stamp } => self.brought.push((object, stamp)),
            ViewChange::Flushed | ViewChange::Ended => {}
        }
    }

    /// Whether it may be an undo, whose view shows what was in limbo.
    pub fn shows_limbo(&self) -> bool {
        let mut objects = self.objects.iter();
        let in_limbo = objects.any(|object| matches!(object.place, ObjectPlace::Limbo));
        in_limbo || !self.restored.is_empty()
    }

    fn take_node(&mut self, mut node: ViewNode) {
        let before = self.nodes.remove(&node.node).and_then(|node| node.own);
        if let Some(own) = &mut node.own
            && let ViewBody::File { pages, .. } = &mut own.body
        {
            let before = before.and_then(|own| match own.body {
                ViewBody::File { pages, .. } => pages,
                _ => None,
            });
            *pages = pages.take().or(before).or_else(|| Some(Vec::new()));
        }
        self.nodes.insert(node.node, node);
    }
}

impl<D: Disk> View<D> {
    /// Makes the view again. Staged objects that a commit had moved are put into slots, and what
    /// the view does not need is removed from the staging directory. The present state gets a
    /// new log, which is durable.
    pub fn revive(core: &Arc<Core<D>>, logged: LoggedView, older: &Older) -> Result<View<D>> {
        let begin = ViewBegin {
            attachment: core.control.applied.attachment(),
            ..logged.begin.clone()
        };
        let id = TransactionId(begin.transaction);
        let mut view = View::new(core.clone(), id, Sequence(begin.at));
        view.has_stage = true;
        view.joint = begin.coordinator.clone().map(Joint::InDoubt);
        view.frozen = view.is_in_doubt();
        let objects = make_objects(core, &logged.objects, (older, view.at))?;
        let note = logged.note.clone();
        let brought = note_brought(&logged.brought, &objects, view.at)?;
        let mut stage = StageTree::read(&view)?;
        let node_last = view.take_logged(logged, &objects)?;
        view.numbers = Arc::new(Numbers::after(node_last, stage.last_slot));
        stage.put_right(&mut view)?;
        view.has_placed = true;
        // Until the new log is durable, a crash may bring back the state that was flushed last.
        // So nothing is removed or cut before.
        view.begin_flushed_log((begin, note), brought)?;
        view.trim_staged()?;
        view.drop_unneeded();
        stage.purge(&view)?;
        view.record()?;
        Ok(view)
    }

    /// Returns the last node id in use.
    fn take_logged(
        &mut self,
        logged: LoggedView,
        objects: &HashMap<u64, Arc<Base>>,
    ) -> Result<NodeId> {
        let object = |number: u64| objects.get(&number).cloned().ok_or(Errno::STALE);
        let numbers = &self.core.inode_numbers;
        let root = self.core.root_base.clone();
        let mut nodes = Nodes::new(&root);
        let mut node_last = NodeId::ROOT;
        for logged in logged.nodes.into_values() {
            let id = NodeId(logged.node);
            node_last = node_last.max(id);
            let base = logged.object.map(object).transpose()?;
            if let Some(base) = &base {
                nodes.by_base.insert(base.serial, id);
            }
            let mut own = logged.own.map(own_of);
            if let Some(own) = &mut own {
                nodes.changed.insert(id);
                let base = base.as_ref().map(|base| base.identity().inode);
                own.attributes.inode = numbers.revived(own.attributes.inode, base);
            }
            let node = Node {
                kind: logged.kind,
                base,
                parent: NodeId(logged.parent),
                name: logged.name,
                reported: logged.reported,
                children: 0,
                listed: 0,
                own: own.map(Arc::new),
                is_watched: false,
            };
            nodes.put(id, Arc::new(node));
        }
        let entries = logged.entries.into_iter().flat_map(|(directory, entries)| {
            let entry = move |(name, difference)| (directory, name, difference);
            entries.into_iter().map(entry)
        });
        for (directory, name, difference) in entries {
            let before = difference.before.map(object).transpose()?;
            let now = difference.now.map(NodeId);
            if let Some(now) = now {
                nodes.get_mut(now).ok_or(Errno::STALE)?.listed += 1;
            }
            let own = nodes.get_mut(NodeId(directory)).ok_or(Errno::STALE)?;
            let own = own.own.as_mut().ok_or(Errno::STALE)?;
            let OwnBody::Directory(delta) = &mut Arc::make_mut(own).body else {
                return Err(Errno::STALE);
            };
            delta.entries.insert(name, EntryDelta { before, now });
        }
        let ids: Vec<NodeId> = nodes.ids().filter(|id| *id != NodeId::ROOT).collect();
        for id in ids {
            let parent = nodes.get(id).map(|node| node.parent).ok_or(Errno::STALE)?;
            nodes.get_mut(parent).ok_or(Errno::STALE)?.children += 1;
        }
        for number in logged.dying {
            let base = object(number)?;
            nodes.dying.insert(base.serial, base);
        }
        for number in logged.restored {
            self.restored.insert(object(number)?.serial);
        }
        for (before, after) in logged.successions {
            self.successions.push((object(before)?, object(after)?));
        }
        self.nodes = nodes;
        Ok(node_last)
    }

    /// Takes back what calls that were not recorded have written to staged files: bytes behind
    /// the end, and pages that the file does not hold.
    fn trim_staged(&mut self) -> Result<()> {
        let changed: Vec<NodeId> = self.changed_nodes().collect();
        for id in changed {
            let node = self.node(id)?;
            let (Some(contents), true) = (node.contents().cloned(), node.kind == Kind::File) else {
                continue;
            };
            if self.staged(id)?.is_none() {
                continue;
            }
            let length = self.file_length(id)?;
            let file = self.staged_file(id)?;
            let disk = &self.core.disk;
            let staged = disk.stat(&file)?.length;
            if staged > length {
                disk.set_length(&file, length)?;
                self.note_staged_write(id);
            }
            if contents.base_limit == 0 {
                continue;
            }
            let disk = &self.core.disk;
            let mut punched = false;
            let end = staged.min(length).div_ceil(PAGE);
            let mut page = 0;
            while page < end {
                let (is_own, until) = contents.pages.run_at(page);
                let until = until.min(end);
                if !is_own {
                    disk.punch_hole(&file, page * PAGE, (until - page) * PAGE)?;
                    punched = true;
                }
                page = until;
            }
            if punched {
                self.note_staged_write(id);
            }
        }
        Ok(())
    }
}

/// Makes the base objects known that the log mentions. Whether they are still there is found out
/// when they are looked at.
fn make_objects<D: Disk>(
    core: &Core<D>,
    logged: &[ViewObject],
    (older, at): (&Older, Sequence),
) -> Result<HashMap<u64, Arc<Base>>> {
    let mut objects: HashMap<u64, Arc<Base>> = HashMap::new();
    for object in logged {
        if let Some(known) = older.find(object.identity, at) {
            objects.insert(object.number, known.clone());
            continue;
        }
        let place = match &object.place {
            ObjectPlace::Root => {
                objects.insert(object.number, core.root_base.clone());
                continue;
            }
            ObjectPlace::Entry { directory, name } => Place::Entry {
                parent: objects.get(directory).cloned().ok_or(Errno::STALE)?,
                name: name.clone(),
            },
            ObjectPlace::Limbo => Place::Limbo(names::limbo(object.identity)),
        };
        let base = core.intern_known(object.identity, object.kind, place);
        objects.insert(object.number, base);
    }
    Ok(objects)
}

/// Notes what commits up to `at` have left of files, unless something newer is known.
fn note_brought(
    logged: &[(u64, ViewStamp)],
    objects: &HashMap<u64, Arc<Base>>,
    at: Sequence,
) -> Result<Brought> {
    let each = logged.iter().map(|(number, stamp)| {
        let base = objects.get(number).cloned().ok_or(Errno::STALE)?;
        let stamp = Stamp::from_log(*stamp);
        let own = OwnStamp { stamp, left_by: at };
        let mut state = base.state();
        state.history_mut().changed.own_stamp.get_or_insert(own);
        drop(state);
        Ok((base, stamp))
    });
    each.collect()
}

fn own_of(logged: ViewOwn) -> Own {
    let touched = |bit| logged.touched & bit != 0;
    Own {
        attributes: logged.attributes,
        touched: Touched {
            mode: touched(TOUCHED_MODE),
            owner: touched(TOUCHED_OWNER),
            accessed: touched(TOUCHED_ACCESSED),
            modified: touched(TOUCHED_MODIFIED),
        },
        stamp: logged.stamp.map(Stamp::from_log),
        xattrs: logged.xattrs.into_iter().collect(),
        body: match logged.body {
            ViewBody::Unchanged => OwnBody::Unchanged,
            ViewBody::File { base_limit, pages } => OwnBody::File(Contents {
                base_limit,
                pages: ranges(pages.unwrap_or_default()),
                in_place: false,
            }),
            ViewBody::Directory {
                is_touched,
                is_removed,
            } => OwnBody::Directory(DirectoryDelta {
                is_touched,
                removed: is_removed,
                ..DirectoryDelta::default()
            }),
            ViewBody::Symlink(target) => OwnBody::Symlink(target),
            ViewBody::Special => OwnBody::Special,
        },
        staged: logged.staged.map(|staged| Staged {
            parent: match staged.parent {
                None => StagedParent::Slots,
                Some(id) => StagedParent::Node(NodeId(id)),
            },
            name: staged.name,
            identity: staged.identity,
        }),
        dress: match logged.dress {
            DRESS_COMPLETE => Dress::Complete,
            DRESS_OUTDATED => Dress::Outdated,
            _ => Dress::Bare,
        },
    }
}

fn ranges(pages: Vec<(u64, u64)>) -> RangeSet {
    let mut set = RangeSet::default();
    for (start, end) in pages {
        set.insert(start, end);
    }
    set
}
