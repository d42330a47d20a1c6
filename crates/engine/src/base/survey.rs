//! Looks through the base for objects that an ordinary user's overlay cannot copy up: those with several
//! names, or with an owner or group other than the user's own. A store that has one gets exact views.
//!
//! Invariants
//! 1. An object that was made, linked or moved before the call is found, whoever did it: each
//!    changes its directory, and each call looks at all directories. What changed in no
//!    directory of the store (an owner, or a new name outside) may be missed. The view bars such an
//!    object ([`crate::view::upper`]), and then everything is looked at again.
//! 2. A call looks at no more than so many objects. If there are more, it says so, and the next call
//!    goes on from there.
//! 3. Nothing of what is mounted inside the store is looked at.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name, Owner, Result, Stat, Timestamp};

use crate::base::core::Core;
use crate::lock;
use crate::options::milliseconds_between;

/// Each directory on the way down is kept open.
const DEPTH_MAX: usize = 100;
/// The file system's clock may stand still for so long (`docs/guarantees.md`, "What must hold").
const CLOCK_STEP_MS: i128 = 1000;

/// Why an ordinary user's overlay does not suit a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeyondOverlay {
    SeveralNames {
        path: Vec<u8>,
    },
    OtherOwner {
        path: Vec<u8>,
    },
    /// There are more objects than were looked at, or deeper directories.
    Unknown,
}

/// The directories that held no such object, by identity.
#[derive(Default)]
pub(crate) struct Survey(HashMap<Identity, Seen>);

struct Seen {
    changed: Timestamp,
    directories: Vec<Name>,
}

impl Survey {
    /// Forgets what was seen: an object has changed without a change of its directory.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// A directory on the way down, and its subdirectories that are still to be looked at.
struct Step<D: Disk> {
    handle: Arc<D::Handle>,
    name: Option<Name>,
    left: Vec<Name>,
}

struct Search<'a, D: Disk> {
    core: &'a Core<D>,
    survey: &'a mut Survey,
    own: Owner,
    left: usize,
    way: Vec<Step<D>>,
}

impl<D: Disk> Core<D> {
    /// The first object found that the overlay of a user with this owner and group cannot copy up.
    /// Looks at `objects_max` objects at most.
    pub fn beyond_overlay(&self, own: Owner, objects_max: usize) -> Result<Option<BeyondOverlay>> {
        let mut survey = lock(&self.survey);
        // A call looks at fewer directories than that, so most of these are gone.
        if survey.0.len() / 2 > objects_max {
            survey.forget();
        }
        let mut search = Search {
            core: self,
            survey: &mut survey,
            own,
            left: objects_max,
            way: Vec::new(),
        };
        search.run()
    }
}

impl<D: Disk> Search<'_, D> {
    fn run(&mut self) -> Result<Option<BeyondOverlay>> {
        let root = self.core.root.clone();
        let stat = self.core.disk.stat(&root)?;
        if let Some(found) = self.enter(root, None, &stat)? {
            return Ok(Some(found));
        }
        while let Some(step) = self.way.last_mut() {
            let Some(name) = step.left.pop() else {
                self.way.pop();
                continue;
            };
            let above = step.handle.clone();
            let stat = match self.core.disk.stat_at(&above, &name) {
                Ok(stat) => stat,
                // Removed meanwhile, or in a directory that the user may only list.
                Err(Errno::NOENT | Errno::ACCESS) => continue,
                Err(errno) => return Err(errno),
            };
            if !self.is_inside(&stat) || stat.kind != Kind::Directory {
                continue;
            }
            if self.is_known_leaf(&stat) {
                if !self.spend() {
                    return Ok(Some(BeyondOverlay::Unknown));
                }
                continue;
            }
            if self.way.len() == DEPTH_MAX {
                return Ok(Some(BeyondOverlay::Unknown));
            }
            let found = match self.core.disk.open(&above, &name, Access::Directory) {
                Ok(handle) => self.enter(Arc::new(handle), Some(name), &stat)?,
                // Removed meanwhile, or closed to the user.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => None,
                Err(errno) => return Err(errno),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Most directories have no subdirectories, and need not be opened again.
    fn is_known_leaf(&self, stat: &Stat) -> bool {
        let seen = self.survey.0.get(&stat.identity);
        stat.attributes.owner == self.own
            && seen.is_some_and(|seen| seen.changed == stat.changed && seen.directories.is_empty())
    }

    /// Looks at a directory and what it holds, except for subdirectories.
    fn enter(
        &mut self,
        handle: Arc<D::Handle>,
        name: Option<Name>,
        stat: &Stat,
    ) -> Result<Option<BeyondOverlay>> {
        self.way.push(Step {
            handle,
            name,
            left: Vec::new(),
        });
        if stat.attributes.owner != self.own {
            let path = self.path(None);
            return Ok(Some(BeyondOverlay::OtherOwner { path }));
        }
        if !self.spend() {
            return Ok(Some(BeyondOverlay::Unknown));
        }
        let seen = self.survey.0.get(&stat.identity);
        let directories = match seen.filter(|seen| seen.changed == stat.changed) {
            Some(seen) => seen.directories.clone(),
            None => match self.look(stat)? {
                Ok(directories) => directories,
                Err(found) => return Ok(Some(found)),
            },
        };
        if let Some(step) = self.way.last_mut() {
            step.left = directories;
        }
        Ok(None)
    }

    /// Returns the subdirectories, or an object that was looked for.
    fn look(&mut self, stat: &Stat) -> Result<std::result::Result<Vec<Name>, BeyondOverlay>> {
        let now = self.core.options.clock.now();
        let Some(step) = self.way.last() else {
            return Ok(Ok(Vec::new()));
        };
        let (handle, is_root) = (step.handle.clone(), step.name.is_none());
        let mut directories = Vec::new();
        let entries = match self.core.disk.list(&handle) {
            // The user may not search it.
            Err(Errno::ACCESS) => return Ok(Ok(directories)),
            entries => entries?,
        };
        for entry in entries {
            if is_root && self.core.hidden.as_ref() == Some(&entry.name) {
                continue;
            }
            if entry.kind == Some(Kind::Directory) {
                directories.push(entry.name);
                continue;
            }
            if !self.spend() {
                return Ok(Err(BeyondOverlay::Unknown));
            }
            let found = match self.core.disk.stat_at(&handle, &entry.name) {
                Ok(found) if self.is_inside(&found) => found,
                Ok(_) | Err(Errno::NOENT | Errno::ACCESS) => continue,
                Err(errno) => return Err(errno),
            };
            if found.kind == Kind::Directory {
                directories.push(entry.name);
            } else if found.attributes.owner != self.own {
                let path = self.path(Some(&entry.name));
                return Ok(Err(BeyondOverlay::OtherOwner { path }));
            } else if found.links > 1 {
                let path = self.path(Some(&entry.name));
                return Ok(Err(BeyondOverlay::SeveralNames { path }));
            }
        }
        // A later change may get the same time as one that has just happened.
        if milliseconds_between(stat.changed, now) > CLOCK_STEP_MS {
            let seen = Seen {
                changed: stat.changed,
                directories: directories.clone(),
            };
            self.survey.0.insert(stat.identity, seen);
        }
        Ok(Ok(directories))
    }

    fn is_inside(&self, stat: &Stat) -> bool {
        !stat.mount_point && stat.device == self.core.device
    }

    /// False if no more objects may be looked at.
    fn spend(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    fn path(&self, name: Option<&Name>) -> Vec<u8> {
        let way = self.way.iter().filter_map(|step| step.name.as_ref());
        let names: Vec<_> = way.chain(name).map(Name::as_bytes).collect();
        names.join(&b'/')
    }
}
