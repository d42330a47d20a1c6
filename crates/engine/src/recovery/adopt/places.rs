//! Where the objects are that commits of the past name.

use std::collections::HashMap;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name};
use atomdir_format::record::{CommitRecord, Locator};

type Place = (Identity, Name);

/// Filled with the commits, oldest first.
pub(super) struct Places {
    root: Identity,
    /// The object that each name leads to after the newest commit, as far as the commits say.
    holders: HashMap<Place, Option<Identity>>,
    places: HashMap<Identity, Vec<Place>>,
    objects: HashMap<Identity, Known>,
}

#[derive(Clone, Copy)]
struct Known {
    kind: Kind,
    /// As the newest commit has left it, if one has written it.
    length: Option<u64>,
}

/// A path is not followed further: no tree that can be walked is deeper.
const DEPTH_MAX: usize = 1 << 16;

impl Places {
    pub fn new(root: Identity) -> Places {
        Places {
            root,
            holders: HashMap::new(),
            places: HashMap::new(),
            objects: HashMap::new(),
        }
    }

    pub fn note(&mut self, commit: &CommitRecord) {
        let of = |index: u32| commit.directories[index as usize].identity;
        for directory in &commit.directories {
            if directory.locator == Locator::Root {
                self.root = directory.identity;
            }
            let kind = Kind::Directory;
            let known = Known { kind, length: None };
            self.objects.insert(directory.identity, known);
        }
        let directories = commit.directories.iter();
        let directories = directories.map(|one| (one.identity, &one.locator));
        let objects = commit.objects.iter();
        let objects = objects.map(|one| (one.identity, &one.locator));
        for (identity, locator) in directories.chain(objects) {
            if let Locator::Entry { directory, name } = locator {
                self.put((of(*directory), name.clone()), Some(identity));
            }
        }
        for object in &commit.objects {
            let (kind, length) = (object.kind, None);
            let known = self.objects.entry(object.identity);
            known.or_insert(Known { kind, length });
        }
        for update in &commit.updates {
            let identity = commit.objects[update.object as usize].identity;
            if let (Some(content), Some(known)) = (&update.content, self.objects.get_mut(&identity))
            {
                known.length = Some(content.length);
            }
        }
        for entry in &commit.entries {
            let after = entry.after;
            let after = after.map(|after| commit.objects[after as usize].identity);
            self.put((of(entry.directory), entry.name.clone()), after);
        }
    }

    fn put(&mut self, place: Place, object: Option<Identity>) {
        if let Some(object) = object {
            self.places.entry(object).or_default().push(place.clone());
        }
        self.holders.insert(place, object);
    }

    /// The names from the root, or from a directory in limbo, down to the object. Other names come
    /// after this one if the object has several.
    fn ways(&self, object: Identity) -> impl Iterator<Item = &Place> {
        let places = self.places.get(&object).into_iter().flatten().rev();
        places.filter(move |place| self.holders.get(*place) == Some(&Some(object)))
    }

    /// Finds the object that a copy has in the place of this one.
    pub fn find<D: Disk>(
        &self,
        disk: &D,
        (root, limbo): (&D::Handle, &D::Handle),
        in_limbo: impl Fn(&Identity) -> Option<Name>,
        object: Identity,
    ) -> Result<Option<Identity>, Errno> {
        if object == self.root {
            return Ok(Some(disk.stat(root)?.identity));
        }
        for (directory, name) in self.ways(object) {
            let found = self.open(disk, (root, limbo), &in_limbo, *directory);
            let found = found.and_then(|directory| match directory {
                Some(Found::Root) => disk.stat_at(root, name).map(Some),
                Some(Found::Below(directory)) => disk.stat_at(&directory, name).map(Some),
                None => Ok(None),
            });
            let stat = match found {
                Ok(Some(stat)) => stat,
                Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => {
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            let is_same = self.objects.get(&object).is_none_or(|known| {
                let length = known.length.filter(|_| known.kind == Kind::File);
                known.kind == stat.kind && length.is_none_or(|length| length == stat.length)
            });
            if is_same {
                return Ok(Some(stat.identity));
            }
        }
        Ok(None)
    }

    fn open<D: Disk>(
        &self,
        disk: &D,
        (root, limbo): (&D::Handle, &D::Handle),
        in_limbo: impl Fn(&Identity) -> Option<Name>,
        directory: Identity,
    ) -> Result<Option<Found<D>>, Errno> {
        let (mut names, mut at) = (Vec::new(), directory);
        let start = loop {
            if at == self.root {
                break None;
            }
            if let Some(name) = in_limbo(&at) {
                break Some(name);
            }
            let Some((above, name)) = self.ways(at).next() else {
                return Ok(None);
            };
            names.push(name);
            at = *above;
            if names.len() > DEPTH_MAX {
                return Ok(None);
            }
        };
        let mut found = match start {
            None => Found::Root,
            Some(name) => Found::Below(disk.open(limbo, &name, Access::Path)?),
        };
        for name in names.into_iter().rev() {
            let above = match &found {
                Found::Root => root,
                Found::Below(directory) => directory,
            };
            found = Found::Below(disk.open(above, name, Access::Path)?);
        }
        Ok(Some(found))
    }
}

enum Found<D: Disk> {
    Root,
    Below(D::Handle),
}
