//! What programs outside transactions have changed through a guard, until it is logged as a commit:
//! see `commit::remember`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use atomdir_disk::{Identity, Name, Timestamp};

use crate::base::{Base, OldAttributes};
use crate::ids::Sequence;
use crate::options::milliseconds_between;

/// A run of a program: what was started together, for instance by one line in a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The process group, in the service's own namespace of processes. 0: it is in none of these.
    pub group: u32,
    /// Who has made the first change.
    pub user: u32,
    /// The program's name, and those of programs that it has started.
    pub name: Vec<u8>,
}

/// A run counts as over after so long without a change.
const QUIET_MS: i128 = 60_000;
/// The changes of a run that does not end are logged so often.
const AGE_MS: i128 = 600_000;
/// And at the latest once there are so many.
const CHANGES_MAX: usize = 100_000;

/// Objects that are as they were, but for times, and how they were, by serial.
pub(crate) type Passing = BTreeMap<u64, (Arc<Base>, Arc<OldAttributes>)>;

pub(crate) struct Remembered {
    /// The snapshot that shows how everything was before.
    pub at: Sequence,
    pub runs: Vec<Run>,
    /// The first and the last change, by the clock of the options.
    pub first: Timestamp,
    pub last: Timestamp,
    /// Objects that may have changed, by serial.
    pub objects: BTreeMap<u64, Arc<Base>>,
    /// Entries that may have changed, with their directories.
    pub names: BTreeMap<(u64, Name), Arc<Base>>,
    /// Objects that were made, as far as they are known by name.
    pub made: HashMap<Identity, Option<Arc<Base>>>,
}

impl Remembered {
    pub fn after(at: Sequence, now: Timestamp) -> Remembered {
        Remembered {
            at,
            runs: Vec::new(),
            first: now,
            last: now,
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            made: HashMap::new(),
        }
    }

    pub fn note(&mut self, now: Timestamp, objects: &[Arc<Base>], names: Vec<(Arc<Base>, Name)>) {
        self.last = now;
        let objects = objects.iter().map(|base| (base.serial, base.clone()));
        self.objects.extend(objects);
        let names = names.into_iter();
        let names = names.map(|(directory, name)| ((directory.serial, name), directory));
        self.names.extend(names);
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.names.is_empty()
    }

    /// Whether the run has ended, as far as the time tells, or there is too much to wait for that.
    pub fn is_due(&self, now: Timestamp) -> bool {
        // If the clock was set back, everything counts as old.
        let is_old = |time, age_ms| !(0..age_ms).contains(&milliseconds_between(time, now));
        is_old(self.last, QUIET_MS)
            || is_old(self.first, AGE_MS)
            || self.objects.len() + self.names.len() > CHANGES_MAX
    }

    pub fn note_run(&mut self, run: &Run) {
        if self.runs.iter().all(|known| known.group != run.group) {
            self.runs.push(run.clone());
        }
    }
}
