//! Follows the names that commits change.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Disk, Identity, Kind, Name};

use crate::ids::Sequence;
use crate::recovery::older::trace::{Number, State, Step, Trace, Whereabouts};

impl<D: Disk> Trace<'_, D> {
    pub(super) fn add_entries(&mut self, step: &Step<'_>) {
        let sequence = step.sequence;
        let commit = step.commit;
        let afters = commit.entries.iter().filter_map(|entry| entry.after);
        let afters: HashSet<Identity> = afters.map(|index| step.object(index)).collect();
        // Such a file may also have lost its old name before it got that again.
        let named_anew = commit.entries.iter().filter(|entry| !step.replaces(entry));
        let named_anew: HashSet<u32> = named_anew.filter_map(|entry| entry.after).collect();
        let mut touched: Vec<(Number, bool)> = Vec::new();
        let mut links: HashMap<Number, i64> = HashMap::new();
        for entry in &commit.entries {
            let directory = commit.directories[entry.directory as usize].identity;
            let directory = self.number(directory);
            let replaces = step.replaces(entry);
            let before = match (replaces, entry.after, entry.before) {
                (true, Some(after), _) => Some(self.number(step.object(after))),
                (_, _, before) => before.map(|before| self.number(before)),
            };
            self.keep_name(directory, &entry.name, before, sequence);
            let is_kept = |after| replaces && !named_anew.contains(&after);
            if !entry.after.is_some_and(is_kept) && self.is_seen(directory, sequence) {
                let changed = &mut self.objects[directory].changed.names;
                changed.insert(entry.name.clone(), sequence);
            }
            if replaces {
                continue;
            }
            let Some(before) = before else { continue };
            *links.entry(before).or_default() += 1;
            let known = &mut self.objects[before];
            let is_here = matches!(&known.place, Whereabouts::Entry(in_directory, name)
                if *in_directory == directory && *name == entry.name);
            if entry.buries {
                known.place = Whereabouts::Limbo;
                known.changed.removed = Some(sequence);
            } else if is_here || matches!(known.place, Whereabouts::Unknown) {
                known.place = Whereabouts::Unknown;
            }
            known.changed.links = Some(sequence);
            if !entry.buries && !afters.contains(&known.identity) {
                known.changed.unnamed = Some(sequence);
            }
            touched.push((before, !entry.buries));
        }
        for entry in &commit.entries {
            let Some(after) = entry.after else { continue };
            let directory = commit.directories[entry.directory as usize].identity;
            let directory = self.number(directory);
            let object = self.number(step.object(after));
            let named = self.objects[directory].names.get_mut(&entry.name);
            if let Some(named) = named {
                named.now = Some(object);
            }
            if step.replaces(entry) {
                touched.push((object, true));
                continue;
            }
            *links.entry(object).or_default() -= 1;
            let known = &mut self.objects[object];
            if matches!(known.place, Whereabouts::Limbo) {
                // It has left limbo, where it had a name, too.
                *links.entry(object).or_default() += 1;
            }
            known.place = Whereabouts::Entry(directory, entry.name.clone());
            known.changed.links = Some(sequence);
            touched.push((object, true));
        }
        for (object, more) in links {
            let is_buried = matches!(self.objects[object].place, Whereabouts::Limbo);
            self.add_links(object, more - i64::from(is_buried), sequence);
        }
        // Nothing has the inodes that the commit has replaced any more.
        let replaced: HashSet<&Identity> = step.replacements.values().collect();
        let formers = step.formers.keys().map(|index| step.object(*index));
        let formers = formers.filter(|former| !replaced.contains(former));
        let formers = formers.map(|former| (self.number(former), true));
        touched.extend(formers.collect::<Vec<_>>());
        for (object, is_living) in touched {
            self.touch(step, object, is_living);
        }
    }

    fn keep_name(
        &mut self,
        directory: Number,
        name: &Name,
        before: Option<Number>,
        sequence: Sequence,
    ) {
        if !self.is_seen(directory, sequence) {
            return;
        }
        self.add_links(directory, 0, sequence);
        let known = &self.objects[directory];
        let versions = known.names.get(name).map(|named| &named.before);
        let last = versions.and_then(|versions| versions.last());
        let since = last.map_or(known.born, |(until, _)| *until);
        let is_shown = self.is_shown(since, sequence);
        let named = self.objects[directory].names.entry(name.clone());
        let named = named.or_default();
        named.now = None;
        if is_shown {
            named.before.push((sequence, before));
        }
    }

    fn add_links(&mut self, object: Number, links: i64, until: Sequence) {
        if self.is_seen(object, until) {
            let state = State {
                until,
                replaced: None,
                former: None,
                xattrs: Vec::new(),
                links,
            };
            self.add_state(object, state);
        }
    }

    /// Notes when the commit had changed the object. An earlier change is known only if the record
    /// says so.
    fn touch(&mut self, step: &Step<'_>, object: Number, is_living: bool) {
        let settled = step.settled;
        let identity = self.objects[object].identity;
        let is_known = || {
            let mut formers = step.formers.keys();
            let is_replaced = step.replacements.keys();
            let mut is_replaced = is_replaced.map(|index| step.object(*index));
            formers.any(|index| step.object(*index) == identity)
                || is_replaced.any(|new| new == identity)
        };
        let known = &self.objects[object];
        let is_file = known.kind != Some(Kind::Directory);
        let is_old = known.born < step.sequence && is_living && is_file;
        let is_doubtful = is_old && (step.is_settled_late || !is_known());
        let known = &mut self.objects[object];
        if is_doubtful {
            known.changed.doubt = Some((settled, step.sequence));
        }
        known.touched = Some((step.sequence, settled));
    }
}
