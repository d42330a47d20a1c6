//! Readers look for a commit of which they see a part.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_testing::{Random, pick};

use super::{Ends, Guarded};
use atomdir_testing::{binary, shell};

const FILES: usize = 8;
/// A file above 1 MiB, which a commit changes in place.
const LONG: &str = "long";
const LONG_BYTES: u64 = 2 << 20;

/// Makes generation `number` in a view: replaced files, pages changed in place, a new and a removed
/// name, a renamed directory.
fn next_generation(number: u64) -> String {
    let before = number - 1;
    format!(
        "for i in 0 1 2 3 4 5 6 7; do printf '%08d' {number} > f$i; done
        printf '%08d' {number} | dd of={LONG} conv=notrunc bs=8 seek=0 status=none
        printf '%08d' {number} | dd of={LONG} conv=notrunc bs=8 seek=131072 status=none
        : > names/{number}; rm names/{before}; mv at-{before} at-{number}
        printf '%08d' {number} > at-{number}/in"
    )
}

fn number_of(text: &str) -> u64 {
    let what = format!("a generation, not {text:?}");
    text.parse().expect(&what)
}

/// Looks at one part of the tree, and returns the generation that it shows.
fn look_at(base: &Path, part: usize) -> u64 {
    match part {
        part if part < FILES => {
            let text = fs::read_to_string(base.join(format!("f{part}")));
            number_of(&text.expect("it is always there"))
        }
        8 | 9 => {
            let file = fs::File::open(base.join(LONG)).expect("it is always there");
            let mut text = [0; 8];
            let at = (part as u64 - 8) << 20;
            file.read_exact_at(&mut text, at).expect("so long");
            number_of(std::str::from_utf8(&text).expect("digits"))
        }
        10 => listed(&base.join("names"), ""),
        _ => listed(base, "at-"),
    }
}

/// The newest generation that a listing shows. A program makes at least two calls to list a directory,
/// so it may see a name that came after the first.
fn listed(directory: &Path, prefix: &str) -> u64 {
    let list = fs::read_dir(directory).expect("it can be listed");
    let names = list.map(|entry| entry.expect("an entry").file_name());
    let names = names.filter_map(|name| {
        let name = name.into_string().expect("text");
        name.strip_prefix(prefix).and_then(|rest| rest.parse().ok())
    });
    names.max().expect("every commit has a name there")
}

/// Once somebody has seen a commit anywhere, nobody sees anything from before it.
#[test]
fn readers_through_a_guard_see_commits_whole() {
    let test = "readers_through_a_guard_see_commits_whole";
    let prepare = format!(
        "for i in 0 1 2 3 4 5 6 7; do printf '%08d' 0 > f$i; done; mkdir names at-0; : > names/0
        printf '%08d' 0 > at-0/in; truncate -s {LONG_BYTES} {LONG}
        printf '%08d' 0 | dd of={LONG} conv=notrunc bs=8 seek=0 status=none
        printf '%08d' 0 | dd of={LONG} conv=notrunc bs=8 seek=131072 status=none"
    );
    let Some(guarded) = Guarded::new(test, &prepare) else {
        return;
    };
    let (base, is_over) = (guarded.base(), AtomicBool::new(false));
    let generations = pick(30, 300);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut random = Random::from_seed(reader);
                    let (mut newest, mut seen) = (0, 0);
                    while !is_over.load(Ordering::Relaxed) {
                        let part = random.below(FILES + 4);
                        let found = look_at(base, part);
                        assert!(
                            found >= newest,
                            "part {part} shows commit {found} after another showed {newest}"
                        );
                        seen += u64::from(found > newest);
                        newest = found;
                    }
                    seen
                })
            })
            .collect();
        let ends = Ends(&is_over);
        for number in 1..=generations {
            let view = if number % 2 == 0 { "exact" } else { "native" };
            let script = next_generation(number);
            guarded
                .fixture
                .store
                .run_with(&["--view", view], &script)
                .expect(0);
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
        drop(ends);
        for reader in readers {
            let seen = reader.join().expect("a reader found a commit in part");
            assert!(seen > 0, "it has read while commits landed");
        }
    });
    for part in 0..FILES + 4 {
        assert_eq!(look_at(base, part), generations);
    }
    guarded.fixture.store.call(["umount"]).expect(0);
    assert_eq!(look_at(base, 0), generations);
    guarded.fixture.store.assert_at_rest();
}

#[test]
fn a_programs_current_directory_stays_when_a_commit_changes_something_in_it() {
    let test = "a_programs_current_directory_stays_when_a_commit_changes_something_in_it";
    let Some(one) = Guarded::new(test, "mkdir sub") else {
        return;
    };
    let program = binary();
    let script = format!(
        "cd sub; {} -C .. run -- sh -c ': > sub/new; chmod 700 sub'; /bin/pwd -P; ls",
        program.display()
    );
    let outcome = shell(one.base(), &script);
    assert_eq!(
        outcome.text(),
        format!("{}/sub\nnew\n", one.base().display())
    );
}
