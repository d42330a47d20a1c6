//! Compares two captured trees. Each difference names the path, the attribute and both
//! values, so that a person can act on it.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::contents::{Contents, PAGE_SIZE_BYTES};
use super::entry::{Entry, Kind, Moment, Tree};

/// Which modification times must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Ignored,
    /// All, to the nanosecond: for one tree before and after, and for scenarios that set
    /// every time that matters.
    Exact,
    /// For two runs of one scenario that began at different times. If a time on the left is
    /// from before the left run, it was set or left alone on purpose, and must be the same
    /// on the right. Any other is the time of a change: the time on the right must then not
    /// be before the right run began.
    Since {
        left: Moment,
        right: Moment,
    },
}

#[derive(Debug, Clone)]
pub struct CompareOptions {
    pub file_times: Times,
    pub directory_times: Times,
    pub access_times: bool,
    /// Whether to compare where the pages without storage are. Reading shows no difference,
    /// so this matters only if a scenario makes holes.
    pub holes: bool,
    /// Whether to compare how many names each object has, including those outside the tree.
    /// Which paths are one object is always compared.
    pub link_counts: bool,
    /// Whether the objects must be the very same, not copies.
    pub inodes: bool,
    /// Whether to compare the attributes of the captured directory itself.
    pub root: bool,
}

impl CompareOptions {
    /// For two trees that must be the same but were made at different times.
    pub fn alike() -> Self {
        Self {
            file_times: Times::Ignored,
            directory_times: Times::Ignored,
            access_times: false,
            holes: false,
            link_counts: true,
            inodes: false,
            root: true,
        }
    }

    /// For a tree and a faithful copy of it, or a view that shows it.
    pub fn copied() -> Self {
        Self {
            file_times: Times::Exact,
            directory_times: Times::Exact,
            ..Self::alike()
        }
    }

    /// For one tree before and after something that must not change it. Access times are not
    /// compared, since reading changes them.
    pub fn untouched() -> Self {
        Self {
            inodes: true,
            holes: true,
            ..Self::copied()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub path: PathBuf,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.what)
    }
}

/// Returns all differences, ordered by path; none if the trees are equal.
pub fn compare(left: &Tree, right: &Tree, options: &CompareOptions) -> Vec<Difference> {
    let paths: BTreeSet<&PathBuf> = left.entries.keys().chain(right.entries.keys()).collect();
    let mut differences = Vec::new();
    for path in paths {
        if path.as_os_str().is_empty() && !options.root {
            continue;
        }
        let what = match (left.entries.get(path), right.entries.get(path)) {
            (Some(left), Some(right)) => compare_entries(left, right, options),
            (Some(left), None) => vec![format!("only left, a {}", left.kind.name())],
            (None, Some(right)) => vec![format!("only right, a {}", right.kind.name())],
            (None, None) => Vec::new(),
        };
        differences.extend(what.into_iter().map(|what| Difference {
            path: path.clone(),
            what,
        }));
    }
    differences
}

/// Panics with a readable list when the trees differ.
#[track_caller]
pub fn assert_equal(what: &str, left: &Tree, right: &Tree, options: &CompareOptions) {
    const SHOWN_MAX: usize = 40;
    let differences = compare(left, right, options);
    if differences.is_empty() {
        return;
    }
    let mut text = format!("{what}: {} differences\n", differences.len());
    for difference in differences.iter().take(SHOWN_MAX) {
        text.push_str(&format!("  {difference}\n"));
    }
    if differences.len() > SHOWN_MAX {
        text.push_str(&format!("  and {} more\n", differences.len() - SHOWN_MAX));
    }
    panic!("{text}");
}

fn compare_entries(left: &Entry, right: &Entry, options: &CompareOptions) -> Vec<String> {
    let mut found = Vec::new();
    if left.kind.name() != right.kind.name() {
        // If the types differ, nothing else is worth comparing.
        return vec![format!("type {}, {}", left.kind.name(), right.kind.name())];
    }
    compare_kinds(&left.kind, &right.kind, options, &mut found);
    let is_directory = left.kind == Kind::Directory;
    differ(
        &mut found,
        "mode",
        format!("{:04o}", left.mode),
        format!("{:04o}", right.mode),
    );
    differ(&mut found, "user", left.user, right.user);
    differ(&mut found, "group", left.group, right.group);
    // File systems count the links of directories in different ways.
    if !is_directory {
        if options.link_counts {
            differ(&mut found, "link count", left.links, right.links);
        }
        differ(
            &mut found,
            "hard link of",
            shown(&left.same_as),
            shown(&right.same_as),
        );
    }
    if options.inodes {
        differ(&mut found, "inode", left.inode, right.inode);
    }
    compare_xattrs(left, right, &mut found);
    let times = if is_directory {
        options.directory_times
    } else {
        options.file_times
    };
    compare_times(times, left, right, &mut found);
    if options.access_times {
        differ(&mut found, "access time", left.accessed, right.accessed);
    }
    found
}

fn compare_kinds(left: &Kind, right: &Kind, options: &CompareOptions, found: &mut Vec<String>) {
    match (left, right) {
        (Kind::File(left), Kind::File(right)) => compare_contents(left, right, options, found),
        (Kind::Symlink(left), Kind::Symlink(right)) => {
            differ(
                found,
                "link target",
                left.escape_ascii(),
                right.escape_ascii(),
            );
        }
        (Kind::CharacterDevice(left), Kind::CharacterDevice(right))
        | (Kind::BlockDevice(left), Kind::BlockDevice(right)) => {
            differ(found, "device number", left, right);
        }
        _ => {}
    }
}

fn compare_contents(
    left: &Contents,
    right: &Contents,
    options: &CompareOptions,
    found: &mut Vec<String>,
) {
    differ(found, "size", left.length, right.length);
    if let Some((page, count)) = left.differing_pages(right) {
        let offset = page * PAGE_SIZE_BYTES;
        found.push(format!(
            "contents differ in {count} pages, first in that at byte {offset}"
        ));
    }
    if options.holes && left.length == right.length {
        differ(
            found,
            "holes in pages",
            ranges(&left.holes),
            ranges(&right.holes),
        );
    }
}

fn compare_xattrs(left: &Entry, right: &Entry, found: &mut Vec<String>) {
    let names: BTreeSet<&Vec<u8>> = left.xattrs.keys().chain(right.xattrs.keys()).collect();
    for name in names {
        let value = |entry: &Entry| match entry.xattrs.get(name) {
            Some(value) => format!("\"{}\"", value.escape_ascii()),
            None => "absent".to_owned(),
        };
        differ(
            found,
            &format!("xattr {}", name.escape_ascii()),
            value(left),
            value(right),
        );
    }
}

fn compare_times(times: Times, left: &Entry, right: &Entry, found: &mut Vec<String>) {
    match times {
        Times::Ignored => {}
        Times::Exact => differ(found, "modification time", left.modified, right.modified),
        Times::Since {
            left: left_start, ..
        } if left.modified < left_start => {
            differ(
                found,
                "modification time from before the run",
                left.modified,
                right.modified,
            );
        }
        Times::Since {
            right: right_start, ..
        } => {
            if right.modified < right_start {
                found.push(format!(
                    "modification time {} right is from before the run ({right_start}), yet the run changed it",
                    right.modified
                ));
            }
        }
    }
}

fn differ<T: ToString>(found: &mut Vec<String>, what: &str, left: T, right: T) {
    let (left, right) = (left.to_string(), right.to_string());
    if left != right {
        found.push(format!("{what} {left}, {right}"));
    }
}

fn ranges(holes: &[(u64, u64)]) -> String {
    let shown: Vec<String> = holes
        .iter()
        .map(|(start, end)| format!("{start}..{end}"))
        .collect();
    if shown.is_empty() {
        "none".to_owned()
    } else {
        shown.join(" ")
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return "(the directory itself)".to_owned();
    }
    path.as_os_str().as_bytes().escape_ascii().to_string()
}
