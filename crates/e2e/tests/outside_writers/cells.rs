//! A matrix of which each cell is a directory of one store.

use std::path::PathBuf;

use atomdir_testing::tree::Tree;

pub fn directory(number: usize) -> PathBuf {
    PathBuf::from(format!("cells/{number:05}"))
}

pub fn tree_of(tree: &Tree, number: usize) -> Tree {
    let directory = directory(number);
    let from = tree.entries.range(directory.clone()..);
    let within = from.map_while(|(path, entry)| {
        let path = path.strip_prefix(&directory).ok()?.to_owned();
        let mut entry = entry.clone();
        entry.same_as = entry.same_as.strip_prefix(&directory).ok()?.to_owned();
        Some((path, entry))
    });
    let entries = within.collect();
    Tree { entries }
}
