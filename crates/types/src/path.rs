//! Paths that share what they begin with; which path is in which directory.
//!
//! A commit of nested directories has as many paths as directories, and each is as long as the
//! directory is deep. So lists of paths are kept as trees of names: a path is the path above and a
//! name. It is written out only when it is shown, one at a time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A path relative to the store's root, without a leading slash. The root's is empty. Clones and
/// longer paths share its memory.
#[derive(Clone, Default)]
pub struct TreePath(Option<Arc<Step>>);

struct Step {
    above: TreePath,
    name: Box<[u8]>,
    /// Of the whole path, in bytes.
    length: usize,
    /// How many names it has.
    depth: usize,
}

impl Drop for Step {
    /// A path may be so long that dropping it by recursion would take too much stack.
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(mut step) = above.and_then(Arc::into_inner) {
            above = step.above.0.take();
        }
    }
}

impl TreePath {
    /// The path of the entry `name` in this directory.
    pub fn join(&self, name: &[u8]) -> TreePath {
        let above = self.0.as_ref().map_or(0, |step| step.length + 1);
        TreePath(Some(Arc::new(Step {
            above: self.clone(),
            name: name.into(),
            length: above + name.len(),
            depth: self.depth() + 1,
        })))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |step| step.length)
    }

    /// How many names it has.
    pub fn depth(&self) -> usize {
        self.0.as_ref().map_or(0, |step| step.depth)
    }

    /// Whether it is the root's.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The path above and the last name, unless it is the root's.
    pub fn split(&self) -> Option<(&TreePath, &[u8])> {
        let step = self.0.as_deref()?;
        Some((&step.above, &step.name))
    }

    /// The whole path.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![b'/'; self.len()];
        let (mut at, mut end) = (self, bytes.len());
        while let Some((above, name)) = at.split() {
            let start = end - name.len();
            bytes[start..end].copy_from_slice(name);
            (at, end) = (above, start.saturating_sub(1));
        }
        bytes
    }

    /// Whether one is a clone of the other. Equal paths may also have been made independently.
    pub fn is_same(&self, other: &TreePath) -> bool {
        self.address() == other.address()
    }

    fn address(&self) -> Option<*const Step> {
        self.0.as_ref().map(Arc::as_ptr)
    }
}

impl From<&[u8]> for TreePath {
    fn from(path: &[u8]) -> TreePath {
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        names.fold(TreePath::default(), |above, name| above.join(name))
    }
}

/// A path that can be written out.
pub trait AnyPath {
    /// The whole path.
    fn bytes(&self) -> Cow<'_, [u8]>;
}

impl<P: AnyPath + ?Sized> AnyPath for &P {
    fn bytes(&self) -> Cow<'_, [u8]> {
        (**self).bytes()
    }
}

impl AnyPath for TreePath {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_bytes())
    }
}

impl AnyPath for [u8] {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl AnyPath for Vec<u8> {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl<const N: usize> AnyPath for [u8; N] {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl From<TreePath> for Vec<u8> {
    fn from(path: TreePath) -> Vec<u8> {
        path.to_bytes()
    }
}

impl PartialEq for TreePath {
    fn eq(&self, other: &TreePath) -> bool {
        let (mut one, mut other) = (self, other);
        while one.len() == other.len() && one.address() != other.address() {
            match (one.split(), other.split()) {
                (Some((above, name)), Some((other_above, other_name))) if name == other_name => {
                    (one, other) = (above, other_above);
                }
                _ => return false,
            }
        }
        one.address() == other.address()
    }
}

impl Eq for TreePath {}

impl PartialEq<[u8]> for TreePath {
    fn eq(&self, other: &[u8]) -> bool {
        self.len() == other.len() && self.to_bytes() == other
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// A set of paths, and of all paths above them, each of which has a number. Takes memory and time
/// in proportion to the names, not to the lengths of the paths.
#[derive(Default)]
pub struct PathTable {
    /// The number of the path above, if that is not the root, and the path.
    paths: Vec<(Option<u32>, TreePath)>,
    by_name: HashMap<(Option<u32>, Box<[u8]>), u32>,
    by_address: HashMap<*const Step, u32>,
    /// The addresses of these are known, so they must stay.
    known: Vec<TreePath>,
}

impl PathTable {
    /// Adds a path with those above it and returns its number, unless it is the root's. Paths get
    /// numbers from 0, those above before those below.
    pub fn add(&mut self, path: &TreePath) -> Option<u32> {
        let mut new = Vec::new();
        let (mut at, mut above) = (path, None);
        while let Some((next, _)) = at.split() {
            above = self.number_at(at);
            if above.is_some() {
                break;
            }
            new.push(at);
            at = next;
        }
        for path in new.into_iter().rev() {
            let (_, name) = path.split()?;
            let next = self.paths.len() as u32;
            let number = *self.by_name.entry((above, name.into())).or_insert(next);
            if number == next {
                self.paths.push((above, path.clone()));
            }
            self.by_address
                .extend(path.address().map(|at| (at, number)));
            self.known.push(path.clone());
            above = Some(number);
        }
        above
    }

    fn number_at(&self, path: &TreePath) -> Option<u32> {
        self.by_address.get(&path.address()?).copied()
    }

    /// The number of the path above, if that is not the root, and the path with this number.
    pub fn get(&self, number: u32) -> Option<&(Option<u32>, TreePath)> {
        self.paths.get(number as usize)
    }

    /// All paths, in the order of their numbers.
    pub fn paths(&self) -> &[(Option<u32>, TreePath)] {
        &self.paths
    }

    /// For each number, the place of its path when all are sorted as bytes.
    pub fn ranks(&self) -> Vec<u32> {
        // A directory's place is before everything in it, but a sibling may come between: 'a',
        // 'a-b', 'a/c'. So each path stands for itself, by its name, and for what is in it, by its
        // name with a slash.
        type Sibling<'a> = (&'a [u8], bool, u32);
        let mut below: HashMap<Option<u32>, Vec<Sibling<'_>>> = HashMap::new();
        for (number, (above, path)) in self.paths.iter().enumerate() {
            let name = path.split().map_or(&[][..], |(_, name)| name);
            let siblings = below.entry(*above).or_default();
            siblings.push((name, false, number as u32));
            siblings.push((name, true, number as u32));
        }
        for siblings in below.values_mut() {
            let slash = |is_below: bool| is_below.then_some(&b'/');
            siblings.sort_by(|(one, one_below, _), (other, other_below, _)| {
                let one = one.iter().chain(slash(*one_below));
                one.cmp(other.iter().chain(slash(*other_below)))
            });
        }
        let mut ranks = vec![0; self.paths.len()];
        let mut next = 0;
        let mut waiting: Vec<_> = below
            .remove(&None)
            .into_iter()
            .map(Vec::into_iter)
            .collect();
        while let Some(siblings) = waiting.last_mut() {
            match siblings.next() {
                None => drop(waiting.pop()),
                Some((_, false, number)) => {
                    ranks[number as usize] = next;
                    next += 1;
                }
                Some((_, true, number)) => {
                    waiting.extend(below.remove(&Some(number)).map(Vec::into_iter));
                }
            }
        }
        ranks
    }
}

/// Sorts by path, as bytes, and then as `then` has it.
pub fn sort_by_path<T, K: Ord>(
    items: &mut [T],
    path: impl Fn(&T) -> &TreePath,
    then: impl Fn(&T) -> K,
) {
    let mut table = PathTable::default();
    for item in &*items {
        table.add(path(item));
    }
    let ranks = table.ranks();
    items.sort_by_cached_key(|item| {
        let path = path(item);
        // The root's path is before all others.
        let rank = table.number_at(path).map(|number| ranks[number as usize]);
        (rank, then(item))
    });
}

/// Whether a path is `above`, or is in that directory. Both are relative to the same root, which is the
/// empty path.
pub fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::from(text.as_bytes())
    }

    #[test]
    fn a_path_is_written_out_as_it_was_read() {
        for text in ["", "a", "a/b", "dir/sub/file"] {
            assert_eq!(path(text).to_bytes(), text.as_bytes());
            assert_eq!(path(text).len(), text.len());
            assert_eq!(path(text), path(text));
            assert!(path(text) == *text.as_bytes());
        }
        assert_ne!(path("a/b"), path("b/b"));
        assert_ne!(path("a/b"), path("a/b/c"));
        assert_ne!(path("a"), path(""));
        assert_eq!(path("a").join(b"b"), path("a/b"));
    }

    #[test]
    fn paths_are_sorted_as_bytes() {
        let texts = [
            "b/c/d", "a", "", "a-b", "a/x", "a-b/y", "a/x/z", "a/x-", "b", "a0", "a0/q", "a!/x",
        ];
        let mut sorted: Vec<TreePath> = texts.iter().map(|text| path(text)).collect();
        sort_by_path(&mut sorted, |path| path, |_| ());
        let sorted: Vec<Vec<u8>> = sorted.iter().map(TreePath::to_bytes).collect();
        let mut expected: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().into()).collect();
        expected.sort();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn long_chains_take_no_stack_and_each_name_once() {
        let mut table = PathTable::default();
        let mut at = TreePath::default();
        let mut all = Vec::new();
        for _ in 0..200_000 {
            at = at.join(b"name");
            all.push(at.clone());
            table.add(&at);
        }
        assert_eq!(table.paths().len(), 200_000);
        sort_by_path(&mut all, |path| path, |_| ());
        assert!(all.is_sorted_by_key(TreePath::len));
    }
}
