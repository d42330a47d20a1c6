//! One transaction's own tree and its writes.

use super::super::script::{PAGE, page};
use super::{Object, Transaction, Tree, Writes};

impl Transaction {
    pub(super) fn act(&mut self, words: &[&str]) -> Option<()> {
        let number = |word: &str| word.parse().expect("a number");
        match *words {
            ["append", path, text] => {
                let file = self.file(path)?;
                let end = self.now.0[&file].contents.len();
                self.write(file, end, text.as_bytes())
            }
            ["page", path, place, letter] => {
                let offset = number(place) * PAGE;
                self.write(self.file(path)?, offset, &page(letter))
            }
            ["cut", path, length] => self.cut(self.file(path)?, number(length)),
            ["chmod", path, mode] => {
                let id = self.now.find(path)?;
                let mode = u32::from_str_radix(mode, 8).expect("a mode");
                self.object(id).mode = mode;
                self.wrote(id).attributes = true;
                Some(())
            }
            ["setx", path, value] => {
                let id = self.file(path)?;
                self.object(id).k = format!(" k={value}");
                self.wrote(id).attributes = true;
                Some(())
            }
            ["ln", from, to] => {
                let (file, place) = (self.file(from)?, self.now.split(to)?);
                self.now.0[&place.0].entries.as_ref()?;
                if self.now.find(to).is_some() {
                    return None;
                }
                self.now.set(place, Some(file));
                Some(())
            }
            ["rm", path] => {
                self.file(path)?;
                let place = self.now.split(path)?;
                self.now.set(place, None);
                Some(())
            }
            ["rmdir", path] => {
                let entries = self.now.0[&self.now.find(path)?].entries.as_ref()?;
                entries.is_empty().then_some(())?;
                let place = self.now.split(path)?;
                self.now.set(place, None);
                Some(())
            }
            ["rm-r", path] => {
                let entries = self.now.0[&self.now.find(path)?].entries.clone()?;
                for (name, object) in entries {
                    let verb = match self.now.0[&object].entries {
                        Some(_) => "rm-r",
                        None => "rm",
                    };
                    self.act(&[verb, &format!("{path}/{name}")])?;
                }
                self.act(&["rmdir", path])
            }
            ["mv", from, to] => self.rename(from, to),
            _ => panic!("the model does not know {words:?}"),
        }
    }

    /// Attributes that are again those of the snapshot are no change, unless the contents
    /// were written as well: then the file has another modification time.
    pub fn forget_attributes_put_back(&mut self) {
        let (before, now) = (&self.before, &self.now);
        self.writes.retain(|id, writes| {
            let (Some(old), Some(new)) = (before.0.get(id), now.0.get(id)) else {
                return true;
            };
            writes.keep.is_some() || (&old.mode, &old.k) != (&new.mode, &new.k)
        });
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let (source, place) = (self.now.find(from)?, self.now.split(to)?);
        self.now.0[&place.0].entries.as_ref()?;
        let is_directory = |id: usize| self.now.0[&id].entries.is_some();
        if format!("{to}/").starts_with(&format!("{from}/")) {
            return None;
        }
        if let Some(target) = self.now.find(to) {
            let fits = is_directory(source) == is_directory(target);
            let is_full = self.now.0[&target]
                .entries
                .as_ref()
                .is_some_and(|e| !e.is_empty());
            if target == source || !fits || is_full {
                return None;
            }
        }
        let old = self.now.split(from)?;
        self.now.set(place, Some(source));
        self.now.set(old, None);
        Some(())
    }

    pub(super) fn file(&self, path: &str) -> Option<usize> {
        let file = self.now.find(path)?;
        self.now.0[&file].entries.is_none().then_some(file)
    }

    pub(super) fn object(&mut self, id: usize) -> &mut Object {
        self.now.0.get_mut(&id).expect("it is there")
    }

    /// The writes to an object, if the snapshot has it.
    pub(super) fn wrote(&mut self, id: usize) -> &mut Writes {
        self.writes.entry(id).or_default()
    }

    pub(super) fn write(&mut self, file: usize, offset: usize, data: &[u8]) -> Option<()> {
        let contents = &mut self.object(file).contents;
        let end = offset + data.len();
        contents.resize(contents.len().max(end), 0);
        contents[offset..end].copy_from_slice(data);
        self.keeps(file);
        let pages = (offset / PAGE) as u64..end.div_ceil(PAGE) as u64;
        self.wrote(file).pages.extend(pages);
        Some(())
    }

    pub(super) fn cut(&mut self, file: usize, length: usize) -> Option<()> {
        self.now.0[&file].entries.is_none().then_some(())?;
        let keep = self.keeps(file).min(length);
        let old = self.now.0[&file].contents.len();
        self.object(file).contents.resize(length, 0);
        if length < old {
            let writes = self.wrote(file);
            writes.keep = Some(keep);
            writes
                .pages
                .retain(|page| *page < length.div_ceil(PAGE) as u64);
        }
        Some(())
    }

    pub(super) fn keeps(&mut self, file: usize) -> usize {
        let before = self.before.0.get(&file).map_or(0, |old| old.contents.len());
        *self.wrote(file).keep.get_or_insert(before)
    }

    /// The ranges of pages that were written.
    pub(super) fn written(&self, id: usize, writes: &Writes) -> Vec<(u64, u64)> {
        let (Some(keep), Some(old)) = (writes.keep, self.before.0.get(&id)) else {
            return Vec::new();
        };
        let (old, length) = (old.contents.len(), self.now.0[&id].contents.len());
        let pages = writes.pages.iter().map(|page| (*page, page + 1));
        let mut ranges: Vec<(u64, u64)> = pages.collect();
        if length != old || keep < old {
            ranges.push(((length.min(keep) / PAGE) as u64, u64::MAX));
        }
        ranges
    }

    pub(super) fn merge(&self, id: usize, writes: &Writes, merged: &mut Tree) {
        let (Some(old), Some(now)) = (self.before.0.get(&id), self.now.0.get(&id)) else {
            return;
        };
        let Some(object) = merged.0.get_mut(&id) else {
            return;
        };
        if writes.attributes {
            object.mode = if now.mode == old.mode {
                object.mode
            } else {
                now.mode
            };
            object.k = if now.k == old.k {
                object.k.clone()
            } else {
                now.k.clone()
            };
        }
        let Some(keep) = writes.keep else {
            return;
        };
        if now.contents.len() != old.contents.len() || keep < old.contents.len() {
            object.contents.truncate(keep);
            object.contents.resize(now.contents.len(), 0);
        }
        if keep == 0 {
            object.contents.clone_from(&now.contents);
            return;
        }
        for page in &writes.pages {
            let start = *page as usize * PAGE;
            let end = (start + PAGE).min(now.contents.len());
            if start < end {
                object.contents[start..end].copy_from_slice(&now.contents[start..end]);
            }
        }
    }
}
