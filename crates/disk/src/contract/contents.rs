//! Contents of regular files.

use super::{Access, Disk, Errno, Extent};
use super::{Bench, n, ok, refused};

/// A multiple of every block size that file systems use for holes.
const STEP: u64 = 1 << 16;

pub(super) fn reads_and_writes<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let file = bench.write(directory, "file", b"0123456789");
    let mut buffer = [0xaa; 8];
    assert_eq!(ok(disk.read_at(&file, &mut buffer, 6)), 4);
    assert_eq!(&buffer, b"6789\xaa\xaa\xaa\xaa");
    assert_eq!(ok(disk.read_at(&file, &mut buffer, 10)), 0);
    assert_eq!(ok(disk.read_at(&file, &mut buffer, STEP)), 0);
    ok(disk.write_at(&file, b"xy", 12));
    assert_eq!(bench.read(&file), b"0123456789\0\0xy");
    ok(disk.set_length(&file, 3));
    ok(disk.set_length(&file, 5));
    assert_eq!(bench.read(&file), b"012\0\0");
    ok(disk.write_at(&file, b"", 100));
    assert_eq!(ok(disk.stat(&file)).length, 5);

    let again = bench.open(directory, "file", Access::ReadWrite);
    ok(disk.write_at(&again, b"A", 0));
    assert_eq!(bench.read_at(directory, "file"), b"A12\0\0");
    let reader = bench.open(directory, "file", Access::Read);
    refused(disk.write_at(&reader, b"B", 0), Errno::BADF);
    refused(
        disk.read_at(&bench.open(directory, "file", Access::Path), &mut buffer, 0),
        Errno::BADF,
    );
    refused(disk.write_at(&file, b"B", u64::MAX), Errno::INVAL);
}

pub(super) fn holes<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let extent = |offset, length| Some(Extent { offset, length });
    let file = ok(disk.create(directory, &n("file"), 0o644));
    assert_eq!(ok(disk.next_data(&file, 0)), None);
    ok(disk.set_length(&file, 8 * STEP));
    assert_eq!(ok(disk.next_data(&file, 0)), None);
    ok(disk.write_at(&file, &[1; STEP as usize], 2 * STEP));
    ok(disk.write_at(&file, &[2; 3 * STEP as usize], 4 * STEP));
    assert_eq!(ok(disk.next_data(&file, 0)), extent(2 * STEP, STEP));
    assert_eq!(
        ok(disk.next_data(&file, 2 * STEP + 1)),
        extent(2 * STEP + 1, STEP - 1)
    );
    assert_eq!(
        ok(disk.next_data(&file, 3 * STEP)),
        extent(4 * STEP, 3 * STEP)
    );
    assert_eq!(ok(disk.next_data(&file, 7 * STEP)), None);
    assert_eq!(ok(disk.next_data(&file, 9 * STEP)), None);

    ok(disk.punch_hole(&file, 5 * STEP, STEP));
    assert_eq!(ok(disk.next_data(&file, 4 * STEP)), extent(4 * STEP, STEP));
    assert_eq!(ok(disk.next_data(&file, 5 * STEP)), extent(6 * STEP, STEP));
    assert_eq!(ok(disk.stat(&file)).length, 8 * STEP);
    let mut buffer = vec![9; 3 * STEP as usize];
    assert_eq!(ok(disk.read_at(&file, &mut buffer, 4 * STEP)), buffer.len());
    let (punched, rest) = (STEP as usize, 2 * STEP as usize);
    assert!(buffer[..punched].iter().all(|byte| *byte == 2));
    assert!(buffer[punched..rest].iter().all(|byte| *byte == 0));
    assert!(buffer[rest..].iter().all(|byte| *byte == 2));

    let reserved = ok(disk.create(directory, &n("reserved"), 0o644));
    ok(disk.allocate(&reserved, 0, 4 * STEP));
    let stat = ok(disk.stat(&reserved));
    assert_eq!(stat.length, 0);
    assert!(stat.blocks >= 4 * STEP / 512, "{} blocks", stat.blocks);
}

pub(super) fn copies<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let contents: Vec<u8> = (0..3 * STEP as u32 + 17)
        .map(|index| (index % 251) as u8)
        .collect();
    let from = bench.write(directory, "from", &contents);
    let to = bench.write(directory, "to", &[0xee; 100]);
    assert_eq!(ok(disk.copy_range((&from, 10), (&to, 50), STEP)), STEP);
    let mut expected = vec![0xee; 50];
    expected.extend_from_slice(&contents[10..10 + STEP as usize]);
    assert_eq!(bench.read(&to), expected);
    // It copies less than requested only at the end of the source.
    assert_eq!(
        ok(disk.copy_range((&from, STEP), (&to, 0), u64::MAX >> 8)),
        2 * STEP + 17
    );
    assert_eq!(bench.read(&to), contents[STEP as usize..]);
    assert_eq!(ok(disk.copy_range((&from, 4 * STEP), (&to, 0), 1)), 0);
    assert_eq!(ok(disk.copy_range((&from, 0), (&to, 0), 0)), 0);
    // Copying within one file.
    assert_eq!(ok(disk.copy_range((&to, 0), (&to, STEP), 1000)), 1000);
    let mut expected = contents[STEP as usize..].to_vec();
    expected.copy_within(..1000, STEP as usize);
    assert_eq!(bench.read(&to), expected);
    refused(
        disk.copy_range((&from, u64::MAX), (&to, 0), 1),
        Errno::INVAL,
    );
}

pub(super) fn syncs_and_locks<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let file = bench.write(directory, "file", b"x");
    ok(disk.sync_data(&file));
    ok(disk.sync(&file));
    ok(disk.sync_directory(directory));
    ok(disk.sync_file_system(directory));

    let path = bench.open(directory, "file", Access::Path);
    for sync in [
        D::sync,
        D::sync_data,
        D::sync_directory,
        D::sync_file_system,
    ] {
        refused(sync(disk, &path), Errno::BADF);
    }

    ok(disk.try_lock(&file));
    ok(disk.try_lock(&file));
    let other = bench.open(directory, "file", Access::ReadWrite);
    refused(disk.try_lock(&other), Errno::WOULDBLOCK);
    ok(disk.unlock(&file));
    ok(disk.try_lock(&other));
    refused(disk.try_lock(&file), Errno::WOULDBLOCK);
    drop(other);
    ok(disk.try_lock(&file));

    let status = ok(disk.status(directory));
    assert!(!status.read_only);
    assert!(status.block_size >= 512);
    assert!(status.blocks >= status.blocks_free && status.blocks_free >= status.blocks_available);
    assert!(status.files >= status.files_free);
    assert_eq!(status.name_length_max, 255);
}
