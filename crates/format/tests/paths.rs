//! The lists of paths in summaries.

use atomdir_disk::Timestamp;
use atomdir_format::Problem;
use atomdir_format::frame::Record;
use atomdir_format::record::CommitRecord;
use atomdir_types::{Change, ChangeLine, TreePath};

fn line(path: &TreePath, from: Option<&TreePath>) -> ChangeLine<TreePath> {
    ChangeLine {
        change: Change::Renamed,
        path: path.clone(),
        from: from.cloned(),
    }
}

/// The payload of a record of which only the transaction, time and user are not empty, up to its
/// summary.
fn payload_of(summary: Vec<ChangeLine<TreePath>>) -> Vec<u8> {
    let record = CommitRecord {
        sequence: 1,
        transaction: 2,
        stage: 2,
        time: Timestamp {
            seconds: 3,
            nanoseconds: 4,
        },
        user: 5,
        groups: None,
        is_outside: false,
        label: vec![],
        directories: vec![],
        objects: vec![],
        entries: vec![],
        updates: vec![],
        made: vec![],
        summary,
        before: None,
    };
    record.encode_payload()
}

#[test]
fn names_are_written_once_however_many_paths_they_are_part_of() {
    let length = |depth: usize| {
        let mut lines = Vec::new();
        let mut paths = [TreePath::default(), TreePath::from(&b"old"[..])];
        for _ in 0..depth {
            paths = paths.map(|path| path.join(&[b'n'; 200]));
            lines.push(line(&paths[0], Some(&paths[1])));
        }
        payload_of(lines).len()
    };
    let (short, long) = (length(1000), length(2000));
    assert!(long <= short * 2 + 2000 * 8, "{short} and {long} bytes");
}

#[test]
fn lists_of_paths_have_one_encoding() {
    let paths = [&b"a"[..], b"a/b"].map(TreePath::from);
    let lines = payload_of(vec![line(&paths[1], None)]);
    let summary = [2, 0, 1, b'a', 1, 1, b'b', 1, b'R', 2];
    let head = lines.strip_suffix(&summary).expect("the summary is last");
    let read = |summary: &[u8]| CommitRecord::decode_payload(1, &[head, summary].concat());
    assert!(read(&summary).is_ok());
    let wrong: [&[u8]; 7] = [
        // Twice the same path.
        &[2, 0, 1, b'a', 0, 1, b'a', 2, b'R', 1, b'R', 2],
        // A path that no line has.
        &[2, 0, 1, b'a', 0, 1, b'b', 1, b'R', 1],
        // Another order than that of the lines.
        &[2, 0, 1, b'a', 0, 1, b'b', 2, b'R', 2, b'R', 1],
        // A path above itself.
        &[2, 0, 1, b'a', 2, 1, b'b', 1, b'R', 2],
        // No names.
        &[1, 0, 0, 1, b'R', 1],
        &[1, 0, 3, b'a', b'/', b'b', 1, b'R', 1],
        // A path that is not there.
        &[1, 0, 1, b'a', 2, b'R', 1, b'R', 2],
    ];
    for wrong in wrong {
        let problem = read(wrong).unwrap_err().problem;
        let expected = [Problem::Paths, Problem::Index, Problem::Name];
        assert!(expected.contains(&problem), "{problem:?}: {wrong:?}");
    }
}
