//! Directories read in pieces while they change.

#![cfg(test)]

mod support;

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::process::Command;

fn fill(directory: &Path, count: u32) {
    fs::create_dir(directory).unwrap();
    for number in 0..count {
        fs::write(directory.join(format!("entry {number}")), "").unwrap();
    }
}

#[test]
fn large_directories_are_read_while_they_change() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let directory = mounted.join("d");
    fill(&directory, 10_000);
    let names: HashSet<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 10_000);

    // In the middle of the listing, half of all entries are removed and others are added. So
    // the kernel drops the listing that it has cached.
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(&directory).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if number == 5_000 {
            for even in (0..10_000).step_by(2) {
                fs::remove_file(directory.join(format!("entry {even}"))).unwrap();
            }
            for new in 0..1_000 {
                fs::write(directory.join(format!("new {new}")), "").unwrap();
            }
        }
        seen.push(name);
    }
    let unique: HashSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "an entry was seen twice");
    for odd in (1..10_000).step_by(2) {
        assert!(unique.contains(&format!("entry {odd}")), "skipped");
    }

    assert!(
        Command::new("rm")
            .arg("-rf")
            .arg(&directory)
            .status()
            .unwrap()
            .success()
    );
    assert!(!directory.exists());
    fill(&directory, 3_000);
    let status = Command::new("find")
        .arg(&directory)
        .arg("-delete")
        .status()
        .unwrap();
    assert!(status.success());
    fill(&directory, 3_000);
    // Entries are removed while the directory is read, one getdents at a time.
    for entry in fs::read_dir(&directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
}

#[test]
fn reading_resumes_at_a_directory_position_after_removals() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let directory = mounted.join("d");
    fill(&directory, 2_000);
    let open = || File::open(&directory).unwrap();
    let mut whole = Vec::new();
    let mut reader = rustix::fs::Dir::new(open()).unwrap();
    while let Some(entry) = reader.read() {
        let entry = entry.unwrap();
        whole.push((entry.file_name().to_owned(), entry.offset() as u64));
    }
    assert_eq!(whole.len(), 2_002);
    for place in [0, 1, 2, 700, 1_999] {
        for gone in 0..200 {
            // Each round removes another tenth, so the entry at `place` may be gone.
            let name = &whole[2 + (place + gone) % 2_000].0;
            let _ = fs::remove_file(directory.join(name.to_str().unwrap()));
        }
        let mut file = open();
        file.seek(SeekFrom::Start(whole[place].1)).unwrap();
        let mut reader = rustix::fs::Dir::new(file).unwrap();
        let exists = |name: &CString| directory.join(name.to_str().unwrap()).exists();
        let following = whole[place + 1..].iter().map(|(name, _)| name.clone());
        let expected: Vec<_> = following.filter(exists).collect();
        let mut rest = Vec::new();
        while let Some(entry) = reader.read() {
            rest.push(entry.unwrap().file_name().to_owned());
        }
        // The kernel may still have removed names cached.
        rest.retain(exists);
        assert!(rest == expected, "after place {place}");
    }
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
