//! The trees that a view and the base show, to be compared with the model's.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use atomdir_disk::{Disk, Kind};
use atomdir_engine::{NodeId, Transaction};

use super::model::{Tree, caller, describe_file, join};

/// The tree that a view shows.
pub fn tree_of_view<D: Disk>(view: &Transaction<D>) -> Tree {
    let mut tree = Tree::new();
    walk_view(view, NodeId::ROOT, b"", &mut tree, &mut BTreeMap::new());
    tree
}

fn walk_view<D: Disk>(
    view: &Transaction<D>,
    directory: NodeId,
    path: &[u8],
    tree: &mut Tree,
    firsts: &mut BTreeMap<u64, Vec<u8>>,
) {
    let mut listing = view
        .list(directory)
        .expect("a directory of the view is listed");
    listing.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in listing {
        let path = join(path, entry.name.as_bytes());
        let found = view
            .lookup(directory, entry.name.as_bytes())
            .expect("what is listed is found");
        let attributes = found.attributes;
        assert_eq!(attributes.inode, entry.inode, "{}", path.escape_ascii());
        let description = match attributes.kind {
            Kind::Directory => format!("directory {:o}", attributes.mode),
            Kind::Symlink => {
                let target = view.read_link(found.node).expect("a link is read");
                format!("symlink {}", target.escape_ascii())
            }
            _ => {
                let mut contents = vec![0; attributes.length as usize];
                view.read(found.node, 0, &mut contents, caller())
                    .expect("a file is read");
                let first = firsts
                    .entry(attributes.inode)
                    .or_insert_with(|| path.clone());
                describe_file(&contents, attributes.mode, first)
            }
        };
        tree.insert(path.clone(), description);
        if attributes.kind == Kind::Directory {
            walk_view(view, found.node, &path, tree, firsts);
        }
        view.forget(found.node, 1);
    }
}

/// The tree on disk, without the control directory.
pub fn tree_of_base(root: &Path) -> Tree {
    let mut tree = Tree::new();
    walk_base(root, b"", &mut tree, &mut BTreeMap::new());
    tree
}

fn walk_base(directory: &Path, path: &[u8], tree: &mut Tree, firsts: &mut BTreeMap<u64, Vec<u8>>) {
    let entries = std::fs::read_dir(directory).expect("a directory of the base is listed");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    for name in names
        .into_iter()
        .filter(|name| !(path.is_empty() && name == ".atomdir"))
    {
        let full = directory.join(&name);
        let path = join(path, name.as_bytes());
        let metadata = std::fs::symlink_metadata(&full).expect("what is listed exists");
        let mode = metadata.permissions().mode() & 0o7777;
        let description = if metadata.is_dir() {
            format!("directory {mode:o}")
        } else if metadata.is_symlink() {
            let target = std::fs::read_link(&full).expect("a link is read");
            format!("symlink {}", target.as_os_str().as_bytes().escape_ascii())
        } else {
            let mut contents = vec![0; metadata.len() as usize];
            let file = std::fs::File::open(&full).expect("a file is opened");
            file.read_exact_at(&mut contents, 0)
                .expect("a file is read");
            let first = firsts.entry(metadata.ino()).or_insert_with(|| path.clone());
            describe_file(&contents, mode, first)
        };
        tree.insert(path.clone(), description);
        if metadata.is_dir() {
            walk_base(&full, &path, tree, firsts);
        }
    }
}
