//! A program that commits in its own process is killed again and again. Whoever opens the store
//! next finds each commit whole or not at all, and every commit that had returned.

use crate::support::{Place, open_embedded};
use atomdir::Durability;
use atomdir_testing::{Random, for_each_user, pick, this_program};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const BASE: &str = "ATOMDIR_TEST_KILL";
const FILES: [&str; 3] = ["a", "large", "new/c"];

/// Not a test by itself: the program that is killed. It prints the number of each commit that has
/// returned.
#[test]
fn commit_until_killed() {
    let Some(base) = std::env::var_os(BASE) else {
        return;
    };
    let store = open_embedded(Path::new(&base));
    let tx = store.begin().expect("begun");
    let last: u64 = tx
        .read_to_string("a")
        .expect("read")
        .trim()
        .parse()
        .expect("a number");
    drop(tx);
    println!("\nopened");
    for number in last + 1.. {
        // Every third commit is lazy, and durable with the next one.
        let durability = match number % 3 {
            0 => Durability::Lazy,
            _ => Durability::Durable,
        };
        let options = store.transaction().durability(durability);
        let tx = options.begin().expect("begun");
        tx.remove_dir_all("new").expect("removed");
        tx.create_dir("new").expect("made");
        for name in FILES {
            tx.write(name, contents(name, number)).expect("written");
        }
        tx.rename(format!("g{}", number - 1), format!("g{number}"))
            .expect("renamed");
        tx.commit().expect("committed");
        if durability == Durability::Durable {
            println!("{number}");
        }
    }
}

/// So long that the file is changed in place, and so that a torn one shows.
fn contents(name: &str, number: u64) -> String {
    let times = if name == "large" { 200_000 } else { 1 };
    format!("{number:>9}\n").repeat(times)
}

#[test]
fn a_killed_program_leaves_whole_commits() {
    for_each_user("kill::a_killed_program_leaves_whole_commits", || {
        let mut random = Random::for_test("a_killed_program_leaves_whole_commits");
        let place = Place::new("library-kill");
        std::fs::create_dir(place.base.join("new")).expect("made");
        std::fs::write(place.base.join("g0"), "").expect("written");
        for name in FILES {
            std::fs::write(place.base.join(name), contents(name, 0)).expect("written");
        }
        let mut newest = 0;
        for _ in 0..pick(12, 200) {
            let returned = run_and_kill(&place.base, &mut random).unwrap_or(newest);
            newest = check(&place, returned.max(newest));
        }
    });
}

/// Returns the number of the last commit that is known to have returned.
fn run_and_kill(base: &Path, random: &mut Random) -> Option<u64> {
    let mut command = this_program("kill::commit_until_killed");
    command.env(BASE, base);
    command.stdout(Stdio::piped());
    let mut program = command.spawn().expect("started");
    let output = BufReader::new(program.stdout.take().expect("piped"));
    let mut lines = output.lines().map(|line| line.expect("a line"));
    assert!(lines.any(|line| line == "opened"), "it has ended");
    let (commits, looks) = (random.below(6), random.below(20_000));
    let mut returned: Vec<String> = lines.by_ref().take(commits).collect();
    // Some more time passes, up to about the duration of a commit.
    for _ in 0..looks {
        std::hint::spin_loop();
    }
    program.kill().expect("killed");
    returned.extend(lines);
    program.wait().expect("it has ended");
    let last = returned.last()?;
    Some(last.parse().expect("a number"))
}

/// Recovers the store and returns the number of the newest commit.
fn check(place: &Place, returned: u64) -> u64 {
    let store = place.open();
    let tx = store.begin().expect("begun");
    let number: u64 = tx
        .read_to_string("a")
        .expect("read")
        .trim()
        .parse()
        .expect("a number");
    assert!(
        number >= returned,
        "commit {returned} had returned, {number} is the newest"
    );
    for name in FILES {
        let found = tx.read_to_string(name).expect("read");
        assert!(
            found == contents(name, number),
            "{name} is not of commit {number}"
        );
    }
    let names = tx.read_dir("").expect("listed").into_iter();
    let names: Vec<String> = names
        .map(|entry| entry.file_name.to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["a", &format!("g{number}"), "large", "new"]);
    drop(tx);
    store.close().expect("closed");
    let staged = std::fs::read_dir(place.base.join(".atomdir/stage")).expect("listed");
    assert_eq!(staged.count(), 0, "nothing of killed transactions is left");
    number
}
