//! Large directories, and listing one from several threads at once.

use super::{Bench, n, ok};
use super::{Disk, Kind};

const THREADS: usize = 4;
const ROUNDS: usize = 3;

pub(super) fn large_and_concurrent<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let count = bench.abilities.large_directory_entries;
    for index in 0..count {
        ok(disk.create(directory, &n(&format!("entry-{index}")), 0o600));
    }
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    assert_whole(disk, directory, count);
                }
            });
        }
    });
}

fn assert_whole<D: Disk>(disk: &D, directory: &D::Handle, count: u32) {
    let mut seen = vec![false; count as usize];
    for entry in ok(disk.list(directory)) {
        let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
        let index: usize = name["entry-".len()..].parse().expect("a number");
        assert!(!seen[index], "{name} is listed twice");
        seen[index] = true;
        assert!(entry.kind.is_none_or(|kind| kind == Kind::File));
    }
    assert!(seen.iter().all(|seen| *seen));
}
