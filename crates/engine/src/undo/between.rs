//! Finds files that another commit has renamed or replaced between two of the undone commits.
//!
//! If several commits are undone as one, each file gets back what it was before the first of them.
//! If another commit has renamed the file meanwhile or given it another inode, some of the undone
//! changes are below that and others above it, of other names or of another inode. Then the undo is
//! refused. The commits can still be undone one by one, the newest first. Pages that others have written
//! in place meanwhile are compared one by one, as everywhere.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Identity, Kind};
use atomdir_types::TreePath;

use crate::ids::Sequence;
use crate::undo::files::Files;
use crate::undo::selection::Selection;
use crate::undo::since::{Since, Step};

/// A file, and the newest other commit that renamed or replaced it between two of the undone ones.
pub(super) struct Between {
    pub path: TreePath,
    pub by: Sequence,
}

/// The facts known about a file so far.
#[derive(Default)]
struct Track {
    is_undone_before: bool,
    since_then: Option<Sequence>,
}

pub(super) fn between(since: &Since, selection: &Selection) -> Vec<Between> {
    if since.steps.iter().filter(|step| step.is_undone).count() < 2 {
        return Vec::new();
    }
    let files = Files::new(since.steps.iter().flat_map(Step::successions));
    let directories = directories(since);
    let mut tracks: HashMap<Identity, Track> = HashMap::new();
    let mut found = Vec::new();
    for (number, step) in since.steps.iter().enumerate() {
        if step.is_neutral {
            continue;
        }
        let mut others = HashSet::new();
        for change in changes(step) {
            if directories.contains(&change.object) {
                continue;
            }
            let file = files.first(change.object);
            if !(step.is_undone && change.place.is_in(selection, number)) {
                if matches!(change.place, RecordPlace::Entry(_)) {
                    others.insert(file);
                }
                continue;
            }
            let track = tracks.entry(file).or_default();
            track.is_undone_before = true;
            if let Some(by) = track.since_then.take() {
                let path = change.place.path(step);
                found.push(Between { path, by });
            }
        }
        for file in others {
            let track = tracks.entry(file).or_default();
            if track.is_undone_before {
                track.since_then = Some(step.sequence);
            }
        }
    }
    found
}

struct Change {
    object: Identity,
    place: RecordPlace,
}

/// Where in its record a change is.
enum RecordPlace {
    Entry(usize),
    Update(usize),
}

impl RecordPlace {
    fn is_in(&self, selection: &Selection, step: usize) -> bool {
        match self {
            RecordPlace::Entry(place) => selection.has_entry(step, *place),
            RecordPlace::Update(place) => selection.has_update(step, *place),
        }
    }

    fn path(&self, step: &Step) -> TreePath {
        match self {
            RecordPlace::Entry(place) => {
                let entry = &step.entries()[*place];
                step.path(entry.directory, &entry.name)
            }
            RecordPlace::Update(place) => step.path_of_object(step.updates()[*place].object),
        }
    }
}

/// The objects whose names, attributes or contents a commit has changed.
fn changes(step: &Step) -> impl Iterator<Item = Change> + '_ {
    let entries = step.entries().iter().enumerate();
    let named = entries.flat_map(move |(place, entry)| {
        let objects = entry.before.into_iter().chain(step.after(entry));
        objects.map(move |object| Change {
            object,
            place: RecordPlace::Entry(place),
        })
    });
    let updates = step.updates().iter().enumerate();
    let updated = updates.map(move |(place, update)| Change {
        object: step.object(update.object),
        place: RecordPlace::Update(place),
    });
    named.chain(updated)
}

fn directories(since: &Since) -> HashSet<Identity> {
    let objects = since.steps.iter().flat_map(Step::objects);
    let changed = objects.filter(|object| object.kind == Kind::Directory);
    let changed = changed.map(|object| object.identity);
    let above = since.steps.iter().flat_map(Step::directories);
    changed.chain(above.map(|above| above.identity)).collect()
}
