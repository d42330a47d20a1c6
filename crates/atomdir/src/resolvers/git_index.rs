//! Git's index: which contents git takes each file of the work tree to have.
//!
//! `git status` and others write it again to note the times and inode numbers of files. Such an
//! index differs from the one before in bytes that mean nothing, and the one before is gone by then.
//! But it need not be known. An undo puts the index from before the commits in its place, a commit
//! its own, and what is lost is what the present index says differently. That is nothing of an outside
//! writer's if each such entry says what the work tree has of a file that changes together with the
//! index: the undo or the commit has found that file as it was, and takes its place as well. If
//! somebody has staged something since, an entry differs from the work tree, or its file does not
//! change, and the conflict stays.
//!
//! The format is git's `Documentation/gitformat-index.adoc`, versions 2 to 4, with SHA-1.

use super::{File, Object};
use std::collections::BTreeMap;

const HEADER_LENGTH: usize = 12;
const STAT_LENGTH: usize = 40;
const HASH_LENGTH: usize = 20;
const MODE_AT: usize = 24;
const IS_EXTENDED: u16 = 1 << 14;
/// The length of the name, which is known from the name.
const NAME_LENGTH_BITS: u16 = 0xfff;
const STAGE_BITS: u16 = 0x3000;
const PLAIN: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_000;

/// Extensions that git makes again from the rest and from the work tree.
const DERIVED: [&[u8; 4]; 5] = [b"TREE", b"UNTR", b"FSMN", b"EOIE", b"IEOT"];

#[derive(Debug, PartialEq, Eq)]
struct Index<'a> {
    /// By path and stage.
    entries: BTreeMap<(Vec<u8>, u16), Entry>,
    /// Those that do not follow from the rest.
    extensions: Vec<&'a [u8]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    hash: [u8; HASH_LENGTH],
    flags: (u16, u16),
}

/// The work tree of the index at this path, with a slash at its end unless it is empty.
pub fn work_tree_of(path: &[u8]) -> Option<&[u8]> {
    let above = path.strip_suffix(b".git/index")?;
    (above.is_empty() || above.ends_with(b"/")).then_some(above)
}

/// Whether putting `before` in the place of `now` loses nothing but what the work tree has. `in_tree`
/// knows only files that change together with the index.
pub fn is_taken_back(before: &[u8], now: &[u8], in_tree: impl Fn(&[u8]) -> Object) -> bool {
    let (Some(before), Some(now)) = (parse(before), parse(now)) else {
        return false;
    };
    let all = before.entries.keys().chain(now.entries.keys());
    let mut differing = all.filter(|key| before.entries.get(key) != now.entries.get(key));
    before.extensions == now.extensions
        && differing.all(|key| says_work_tree(key, now.entries.get(key), &in_tree))
}

fn says_work_tree(
    (path, stage): &(Vec<u8>, u16),
    entry: Option<&Entry>,
    in_tree: impl Fn(&[u8]) -> Object,
) -> bool {
    let found = in_tree(path);
    let Some(entry) = entry else {
        return matches!(found, Object::Nothing);
    };
    let (mode, contents) = match found {
        Object::File(File {
            is_executable: true,
            contents,
            ..
        }) => (EXECUTABLE, contents),
        Object::File(File { contents, .. }) => (PLAIN, contents),
        Object::Symlink(target) => (SYMLINK, target),
        Object::Nothing | Object::Directory | Object::Unknown => return false,
    };
    *stage == 0 && entry.flags == (0, 0) && entry.mode == mode && entry.hash == blob(&contents)
}

/// The name by which git knows these contents.
fn blob(contents: &[u8]) -> [u8; HASH_LENGTH] {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(format!("blob {}\0", contents.len()).as_bytes());
    hash.update(contents);
    hash.digest().bytes()
}

fn parse(bytes: &[u8]) -> Option<Index<'_>> {
    let number = |at: usize| {
        let found = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes(found.try_into().ok()?))
    };
    let version = number(4)?;
    if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let mut at = HEADER_LENGTH;
    let mut entries = BTreeMap::new();
    let mut path = Vec::new();
    for _ in 0..number(8)? {
        let start = at;
        let mode = number(start + MODE_AT)?;
        at += STAT_LENGTH;
        let hash = bytes.get(at..at + HASH_LENGTH)?.try_into().ok()?;
        at += HASH_LENGTH;
        let flags = short(bytes, at)?;
        at += 2;
        let mut more = 0;
        if flags & IS_EXTENDED != 0 {
            more = short(bytes, at)?;
            at += 2;
        }
        match version {
            4 => {
                let (dropped, next) = varint(bytes, at)?;
                path.truncate(path.len().checked_sub(dropped)?);
                at = next;
            }
            _ => path.clear(),
        }
        let rest = bytes.get(at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        path.extend(&rest[..length]);
        at += length + 1;
        if version < 4 {
            // Entries begin at multiples of eight.
            at = start + (at - start).next_multiple_of(8);
        }
        let stage = flags & STAGE_BITS;
        let kept = flags & !(NAME_LENGTH_BITS | STAGE_BITS | IS_EXTENDED);
        let flags = (kept, more);
        entries.insert((path.clone(), stage), Entry { mode, hash, flags });
    }
    let end = bytes.len().checked_sub(HASH_LENGTH)?;
    Some(Index {
        entries,
        extensions: extensions(bytes.get(at..end)?)?,
    })
}

/// `None` if they are not understood.
fn extensions(mut rest: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest.get(4..8)?.try_into().ok()?);
        let end = 8 + usize::try_from(length).ok()?;
        let (one, after) = (rest.get(..end)?, rest.get(end..)?);
        if !DERIVED.iter().any(|name| one.starts_with(*name)) {
            found.push(one);
        }
        rest = after;
    }
    Some(found)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number in git's variable-length encoding, and where it ends.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_protocol::Timestamp;

    /// An index with these entries: a path, its contents, and a time of the file.
    fn index(version: u32, entries: &[(&str, &str, u32)]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend((entries.len() as u32).to_be_bytes());
        let mut previous = "";
        for (path, contents, time) in entries {
            let start = bytes.len();
            let stat = [
                *time,
                0,
                *time,
                0,
                1,
                *time,
                PLAIN,
                0,
                0,
                contents.len() as u32,
            ];
            bytes.extend(stat.iter().flat_map(|number| number.to_be_bytes()));
            bytes.extend(blob(contents.as_bytes()));
            bytes.extend((path.len() as u16).to_be_bytes());
            if version == 4 {
                let both = path.bytes().zip(previous.bytes());
                let shared = both.take_while(|(one, other)| one == other).count();
                bytes.push((previous.len() - shared) as u8);
                bytes.extend(path[shared..].bytes().chain([0]));
            } else {
                bytes.extend(path.bytes().chain([0]));
                bytes.resize(start + (bytes.len() - start).next_multiple_of(8), 0);
            }
            previous = path;
        }
        bytes.extend(b"TREE\0\0\0\x03abc");
        bytes.extend([0; HASH_LENGTH]);
        bytes
    }

    fn tree(files: &'static [(&str, &str)]) -> impl Fn(&[u8]) -> Object {
        move |path| {
            let found = files.iter().find(|file| file.0.as_bytes() == path);
            found.map_or(Object::Nothing, |file| {
                Object::File(File {
                    is_executable: false,
                    contents: file.1.into(),
                    inode: 0,
                    changed: Timestamp::default(),
                })
            })
        }
    }

    #[test]
    fn an_index_with_other_times_is_equal() {
        for version in [2, 4] {
            let before = index(version, &[("dir/a", "1", 7), ("dir/b", "1", 7)]);
            let now = index(version, &[("dir/a", "1", 9), ("dir/b", "1", 8)]);
            assert!(is_taken_back(&before, &now, tree(&[])));
        }
    }

    #[test]
    fn entries_that_say_what_the_work_tree_has_go_with_it() {
        let before = index(2, &[("a", "1", 7), ("gone", "1", 7)]);
        let now = index(2, &[("a", "2", 7), ("new", "3", 7)]);
        assert!(is_taken_back(
            &before,
            &now,
            tree(&[("a", "2"), ("new", "3")])
        ));
    }

    #[test]
    fn what_somebody_has_staged_is_no_equal_index() {
        let before = index(2, &[("a", "1", 7)]);
        let staged = index(2, &[("a", "2", 7)]);
        assert!(!is_taken_back(&before, &staged, tree(&[("a", "3")])));
        assert!(!is_taken_back(&before, &staged, tree(&[])));
        let removed = index(2, &[]);
        assert!(!is_taken_back(&before, &removed, tree(&[("a", "1")])));
    }

    #[test]
    fn damaged_indexes_are_never_equal() {
        let good = index(2, &[("a", "1", 7), ("b", "2", 7)]);
        assert!(is_taken_back(&good, &good, tree(&[])));
        for length in 0..good.len() {
            // Without its end the list of extensions is cut, or the file is shorter than its parts.
            let cut = parse(&good[..length]);
            assert!(cut.is_none_or(|cut| cut.entries.len() == 2), "{length}");
        }
        let mut counted = good;
        counted[8..12].fill(0xff);
        assert!(parse(&counted).is_none());
    }

    #[test]
    fn only_the_index_of_a_work_tree_is_one() {
        assert_eq!(work_tree_of(b".git/index"), Some(&b""[..]));
        assert_eq!(work_tree_of(b"a/b/.git/index"), Some(&b"a/b/"[..]));
        assert_eq!(work_tree_of(b"a.git/index"), None);
        assert_eq!(work_tree_of(b".git/modules/x/index"), None);
    }
}
