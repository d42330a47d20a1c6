//! What programs outside do to the base.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::Random;
use super::{Model, Object, join, name};

impl Model {
    /// Does one random change in the base and in the model.
    pub fn step_outside(&mut self, random: &mut Random, root: &Path) {
        let directories = self.directories();
        let mut pick = || directories[random.below(directories.len())].clone();
        let ((path, from), (other_path, to)) = (pick(), pick());
        let (new, other) = (name(random), self.some_name(random, from));
        let at = |path: &[u8], name: &[u8]| -> PathBuf {
            root.join(OsStr::from_bytes(&join(path, name)))
        };
        let (here, there) = (at(&path, &other), at(&other_path, &new));
        let known = self.entries(from).get(&other).copied();
        let is_free = !self.entries(to).contains_key(&new);
        let done = match (random.below(7), known) {
            (0, _) if is_free => {
                self.add(to, &new, file(b"outside"));
                fs::write(there, b"outside")
            }
            (1, _) if is_free => {
                let entries = Default::default();
                let mode = 0o755;
                self.add(to, &new, Object::Directory { entries, mode });
                fs::create_dir(&there)
            }
            (2, Some(id)) if is_free && !self.is_below_directory(id, to) => {
                self.entries_mut(from).remove(&other);
                self.entries_mut(to).insert(new, id);
                fs::rename(here, there)
            }
            (3, Some(id)) if is_free && !self.is_directory(id) => {
                self.entries_mut(to).insert(new, id);
                fs::hard_link(here, there)
            }
            (4, Some(id)) => {
                self.entries_mut(from).remove(&other);
                match self.is_directory(id) {
                    true => fs::remove_dir_all(here),
                    false => fs::remove_file(here),
                }
            }
            (_, Some(id)) => {
                let letter = b'A' + random.below(26) as u8;
                match self.objects.get_mut(&id) {
                    Some(Object::File { contents, .. }) => {
                        contents.resize(contents.len().max(1), 0);
                        contents[0] = letter;
                        let file = fs::OpenOptions::new().write(true).open(here);
                        file.and_then(|file| file.write_all_at(&[letter], 0))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        };
        done.expect("the base is as the model says");
    }
}

fn file(contents: &[u8]) -> Object {
    Object::File {
        contents: contents.to_vec(),
        mode: 0o644,
    }
}
