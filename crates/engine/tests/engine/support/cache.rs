//! A view through a cache that, like the kernel's, forgets only what is invalidated.

use std::collections::BTreeMap;

use atomdir_disk::{Disk, Errno, Kind};
use atomdir_engine::{ListEntry, NodeAttributes, NodeId, Outdated, Transaction};

use super::model::{Tree, caller, describe_file, join};

#[derive(Default)]
pub struct Cache {
    lookups: BTreeMap<NodeId, u64>,
    entries: BTreeMap<(NodeId, Vec<u8>), Option<NodeId>>,
    attributes: BTreeMap<NodeId, NodeAttributes>,
    contents: BTreeMap<NodeId, Vec<u8>>,
    listings: BTreeMap<NodeId, Vec<ListEntry>>,
}

impl Cache {
    pub fn forget(&mut self, outdated: &[Outdated]) {
        for one in outdated {
            match one {
                Outdated::Node(id) => {
                    self.attributes.remove(id);
                    self.contents.remove(id);
                    self.listings.remove(id);
                }
                Outdated::Entry(id, name) => {
                    self.entries.remove(&(*id, name.as_bytes().to_vec()));
                }
            }
        }
    }

    /// Forgets everything but the nodes. Needed after the view was changed by direct calls.
    pub fn clear(&mut self) {
        let lookups = std::mem::take(&mut self.lookups);
        *self = Cache {
            lookups,
            ..Cache::default()
        };
    }

    pub fn drop_nodes<D: Disk>(&mut self, view: &Transaction<D>) {
        for (id, count) in std::mem::take(self).lookups {
            view.forget(id, count);
        }
    }

    fn lookup<D: Disk>(
        &mut self,
        view: &Transaction<D>,
        parent: NodeId,
        name: &[u8],
    ) -> Option<NodeId> {
        let key = (parent, name.to_vec());
        if let Some(known) = self.entries.get(&key) {
            return *known;
        }
        let found = match view.lookup(parent, name) {
            Ok(entry) => {
                *self.lookups.entry(entry.node).or_default() += 1;
                self.attributes.insert(entry.node, entry.attributes);
                Some(entry.node)
            }
            Err(Errno::NOENT) => None,
            Err(error) => panic!("looking up {}: {error}", name.escape_ascii()),
        };
        self.entries.insert(key, found);
        found
    }

    fn attributes<D: Disk>(&mut self, view: &Transaction<D>, id: NodeId) -> NodeAttributes {
        let ask = || view.attributes(id).expect("a known node has attributes");
        *self.attributes.entry(id).or_insert_with(ask)
    }

    fn contents<D: Disk>(&mut self, view: &Transaction<D>, id: NodeId, length: u64) -> Vec<u8> {
        let read = || {
            let mut contents = vec![0; length as usize];
            let count = view.read(id, 0, &mut contents, caller());
            contents.truncate(count.expect("a file is read"));
            contents
        };
        self.contents.entry(id).or_insert_with(read).clone()
    }

    fn listing<D: Disk>(&mut self, view: &Transaction<D>, id: NodeId) -> Vec<ListEntry> {
        let list = || view.list(id).expect("a directory is listed");
        self.listings.entry(id).or_insert_with(list).clone()
    }

    /// The tree as a program sees it through this cache.
    pub fn tree<D: Disk>(&mut self, view: &Transaction<D>) -> Tree {
        let mut tree = Tree::new();
        self.walk(view, NodeId::ROOT, b"", &mut tree, &mut BTreeMap::new());
        tree
    }

    fn walk<D: Disk>(
        &mut self,
        view: &Transaction<D>,
        directory: NodeId,
        path: &[u8],
        tree: &mut Tree,
        firsts: &mut BTreeMap<u64, Vec<u8>>,
    ) {
        let listing = self.listing(view, directory);
        for name in b'a'..=b'g' {
            let is_listed = listing.iter().any(|entry| entry.name.as_bytes() == [name]);
            let path = join(path, &[name]);
            let found = self.lookup(view, directory, &[name]);
            assert_eq!(found.is_some(), is_listed, "{}", path.escape_ascii());
            let Some(id) = found else { continue };
            let attributes = self.attributes(view, id);
            let description = match attributes.kind {
                Kind::Directory => format!("directory {:o}", attributes.mode),
                Kind::Symlink => {
                    let target = view.read_link(id).expect("a link is read");
                    format!("symlink {}", target.escape_ascii())
                }
                _ => {
                    let contents = self.contents(view, id, attributes.length);
                    let first = firsts
                        .entry(attributes.inode)
                        .or_insert_with(|| path.clone());
                    describe_file(&contents, attributes.mode, first)
                }
            };
            tree.insert(path.clone(), description);
            if attributes.kind == Kind::Directory {
                self.walk(view, id, &path, tree, firsts);
            }
        }
    }
}
