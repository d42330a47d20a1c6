//! The lines about why an undo is refused: one for each path.

use crate::error::conflict_line;
use crate::output::quoted;
use atomdir::client::Conflict;
use std::collections::BTreeMap;

/// So many paths are listed unless all are asked for.
const PATHS_MAX: usize = 20;

/// Each path with all that was changed there.
pub fn lines(conflicts: &[Conflict], lists_all: bool) -> Vec<String> {
    let mut paths: BTreeMap<&[u8], Vec<(String, Vec<String>)>> = BTreeMap::new();
    for conflict in conflicts {
        let line = conflict_line(conflict);
        let what = conflict.what.to_string();
        let start = format!("{}: {what}", quoted(&conflict.path));
        let by = line.strip_prefix(&start).unwrap_or_default().to_owned();
        let known = paths.entry(&conflict.path).or_default();
        match known.iter_mut().find(|(known, _)| *known == by) {
            Some((_, all)) if all.contains(&what) => {}
            Some((_, all)) => all.push(what),
            None => known.push((by, vec![what])),
        }
    }
    let count = paths.len();
    // One line more would take as much room as to say that there is one more.
    let shown = if lists_all || count <= PATHS_MAX + 1 {
        count
    } else {
        PATHS_MAX
    };
    let of_path = |(path, changes): (&[u8], Vec<(String, Vec<String>)>)| {
        let changes = changes.iter();
        let changes = changes.map(|(by, what)| format!("{}{by}", what.join(" and ")));
        let changes: Vec<String> = changes.collect();
        format!("{}: {}", quoted(path), changes.join("; "))
    };
    let mut lines: Vec<String> = paths.into_iter().take(shown).map(of_path).collect();
    if shown < count {
        let more = count - shown;
        lines.push(format!("and {more} more paths; --all lists them"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir::{ChangedBy, ConflictKind, Sequence};

    fn conflict(path: &str, what: ConflictKind, by: u64) -> Conflict {
        Conflict {
            path: path.into(),
            what,
            by: ChangedBy::commit(Sequence(by)),
        }
    }

    #[test]
    fn each_path_has_one_line_and_the_rest_is_counted() {
        let one = |path: &str| {
            [
                conflict(path, ConflictKind::Contents, 2),
                conflict(path, ConflictKind::Attributes, 3),
                conflict(path, ConflictKind::Contents, 2),
                conflict(path, ConflictKind::Entry, 2),
            ]
        };
        let found = lines(&one("a"), false);
        let expected = "a: its contents were changed and the name was created, replaced or removed, by \
                        commit 2; its attributes were changed, by commit 3";
        assert_eq!(found, [expected]);
        let many = |count: usize| {
            let names = (0..count).map(|number| format!("{number:03}"));
            names.flat_map(|name| one(&name)).collect::<Vec<_>>()
        };
        assert_eq!(lines(&many(21), false).len(), 21);
        let found = lines(&many(59), false);
        assert_eq!(found.len(), 21);
        assert_eq!(found[20], "and 39 more paths; --all lists them");
        assert_eq!(lines(&many(59), true).len(), 59);
    }
}
