//! Groups the inodes that were the same file, one after the other: a commit that writes a file
//! whole may give it a new inode, and an undo gives it the old one back.

use std::collections::HashMap;

use atomdir_disk::Identity;

#[derive(Default)]
pub(super) struct Files {
    /// Two files may turn out to be one. Then the later one of these is empty.
    inodes: Vec<Vec<Identity>>,
    file_of: HashMap<Identity, usize>,
}

impl Files {
    /// Each pair is an inode, and the one that took its place.
    pub fn new(successions: impl Iterator<Item = (Identity, Identity)>) -> Files {
        let mut files = Files::default();
        successions.for_each(|(before, after)| files.join(before, after));
        files
    }

    fn join(&mut self, before: Identity, after: Identity) {
        let pair = [before, after];
        let known = pair.iter().filter_map(|inode| self.file_of.get(inode));
        let file = known.copied().min().unwrap_or_else(|| {
            self.inodes.push(Vec::new());
            self.inodes.len() - 1
        });
        for inode in pair {
            let same = match self.file_of.get(&inode) {
                Some(known) if *known == file => continue,
                // Two files meet when an undo brings one back.
                Some(known) => std::mem::take(&mut self.inodes[*known]),
                None => vec![inode],
            };
            self.file_of.extend(same.iter().map(|one| (*one, file)));
            self.inodes[file].extend(same);
        }
    }

    /// The inodes of each file.
    pub fn all(&self) -> &[Vec<Identity>] {
        &self.inodes
    }

    /// The file's place in [`Files::all`]; `None` if it never had another inode.
    pub fn place(&self, inode: Identity) -> Option<usize> {
        self.file_of.get(&inode).copied()
    }

    /// All inodes of the file that had this one.
    pub fn same<'a>(&'a self, inode: &'a Identity) -> &'a [Identity] {
        let place = self.place(*inode);
        place.map_or(std::slice::from_ref(inode), |place| &self.inodes[place])
    }

    /// One inode that stands for all of the file's.
    pub fn first(&self, inode: Identity) -> Identity {
        self.same(&inode)[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_that_followed_each_other_are_one_file() {
        let inode = |inode| Identity { inode, birth: 0 };
        let successions = [(1, 2), (3, 4), (1, 5), (2, 3)];
        let successions = successions.map(|(before, after)| (inode(before), inode(after)));
        let files = Files::new(successions.into_iter());
        assert_eq!(
            files.all(),
            [[1, 2, 5, 3, 4].map(inode).to_vec(), Vec::new()]
        );
        assert_eq!(
            (files.first(inode(4)), files.first(inode(9))),
            (inode(1), inode(9))
        );
        assert_eq!(
            (files.place(inode(3)), files.place(inode(9))),
            (Some(0), None)
        );
    }
}
