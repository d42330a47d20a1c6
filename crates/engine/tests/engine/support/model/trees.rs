//! Operations on whole trees, for which programs make many calls.

use atomdir_disk::{Disk, RenameMode};
use atomdir_engine::{NewNode, NodeId, Transaction};

use super::super::Random;
use super::{Model, Object, caller, resolve};

/// An entry: the node of its directory, the directory, the name, and the object.
type Place = (NodeId, usize, Vec<u8>, usize);

impl Model {
    /// Removes a file, or a directory with everything in it.
    pub fn remove_tree<D: Disk>(&mut self, random: &mut Random, view: &Transaction<D>) {
        if let Some((parent, directory, name, _)) = self.some_place(random, view) {
            self.remove_below(view, (parent, directory), &name);
        }
    }

    fn remove_below<D: Disk>(
        &mut self,
        view: &Transaction<D>,
        (parent, directory): (NodeId, usize),
        name: &[u8],
    ) {
        let id = self.entries(directory)[name];
        if self.is_directory(id) {
            let node = view.lookup(parent, name).expect("it is there").node;
            let names: Vec<Vec<u8>> = self.entries(id).keys().cloned().collect();
            for name in names {
                self.remove_below(view, (node, id), &name);
            }
            let removed = view.remove_directory(parent, name);
            removed.expect("it is empty");
            view.forget(node, 1);
        } else {
            view.unlink(parent, name).expect("it is there");
            self.touch(id);
        }
        self.entries_mut(directory).remove(name);
    }

    /// Moves an object into a new directory, which then mostly takes the object's old place.
    pub fn wrap<D: Disk>(&mut self, random: &mut Random, view: &Transaction<D>) {
        let Some((parent, directory, name, id)) = self.some_place(random, view) else {
            return;
        };
        let wrapper = [&name[..], b"-new"].concat();
        if self.entries(directory).contains_key(&wrapper) {
            return;
        }
        let what = NewNode::Directory;
        let made = view.create(parent, &wrapper, what, 0o755, 0, caller());
        let made = made.expect("the name is free").node;
        let within = super::name(random);
        let moved = view.rename(parent, &name, made, &within, RenameMode::NoReplace);
        moved.expect("the directory is empty");
        self.entries_mut(directory).remove(&name);
        self.touch_name(id);
        let object = Object::Directory {
            entries: [(within, id)].into(),
            mode: 0o755,
        };
        self.add(directory, &wrapper, object);
        if random.below(3) > 0 {
            let moved = view.rename(parent, &wrapper, parent, &name, RenameMode::NoReplace);
            moved.expect("the name is free");
            let made = self.entries_mut(directory).remove(&wrapper);
            let made = made.expect("it was made");
            self.entries_mut(directory).insert(name, made);
        }
    }

    fn some_place<D: Disk>(&self, random: &mut Random, view: &Transaction<D>) -> Option<Place> {
        let directories = self.directories();
        let (path, id) = directories[random.below(directories.len())].clone();
        let names: Vec<&Vec<u8>> = self.entries(id).keys().collect();
        let name = names.get(random.below(names.len()))?.to_vec();
        let child = self.entries(id)[&name];
        Some((resolve(view, &path), id, name, child))
    }
}
