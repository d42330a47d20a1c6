//! Kills the servers while entries change.

use crate::support::{Backend, SUFFIX, Slapd, is_possible};
use atomdir_testing::{Random, pick, wait_until};
use std::path::Path;
use std::process::Stdio;

const ENTRIES: usize = 40;

fn name(number: usize) -> String {
    format!("cn={number},{SUFFIX}")
}

/// The number of files that are not entries.
fn others(directory: &Path) -> usize {
    let listed = std::fs::read_dir(directory).unwrap();
    let paths = listed
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file());
    paths
        .filter(|path| path.extension().is_none_or(|extension| extension != "ldif"))
        .count()
}

/// Kills the servers again and again while a client changes all entries. Returns after how many
/// kills there were more files that are not entries than before.
fn killed_changes(backend: Backend, random: &mut Random) -> usize {
    let mut slapd = Slapd::start("kill", backend);
    let mut first = format!("dn: {SUFFIX}\nchangetype: add\nobjectClass: domain\ndc: example\n\n");
    for number in 0..ENTRIES {
        first.push_str(&format!(
            "dn: {}\nchangetype: add\nobjectClass: person\nsn: 0\ncn: {number}\n\n",
            name(number)
        ));
    }
    slapd.change(&first).expect(0);
    let below = slapd.database().join(SUFFIX);
    let (mut kills_that_left, mut left_before) = (0, 0);
    for round in 1..=kills() {
        let mut changes = String::new();
        for number in 0..ENTRIES {
            changes.push_str(&format!(
                "dn: {}\nchangetype: modify\nreplace: sn\nsn: {round}\n-\nreplace: description\n\
                 description: {}\n\n",
                name(number),
                format!("{round}.").repeat(100)
            ));
        }
        let file = slapd.scratch.join("round");
        std::fs::write(&file, changes).unwrap();
        let mut client = slapd.client("ldapmodify");
        let client = client
            .arg("-f")
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let client = client.spawn().unwrap();
        let last = below.join(format!("cn={}.ldif", random.below(ENTRIES - 1)));
        let changed = format!("sn: {round}\n");
        wait_until("a change of the entry", || {
            std::fs::read_to_string(&last).is_ok_and(|text| text.contains(&changed))
        });
        for _ in 0..random.below(100_000) {
            std::hint::spin_loop();
        }
        slapd.kill();
        let said = client.wait_with_output().unwrap();
        // The client prints each entry's name before it sends the change, so the last may be missing.
        let named = String::from_utf8(said.stdout)
            .unwrap()
            .matches("modifying entry")
            .count();
        let acknowledged = if said.status.success() {
            named
        } else {
            named.saturating_sub(1)
        };
        let left = others(&below);
        kills_that_left += usize::from(left > left_before);
        left_before = left;
        slapd.restart();
        let (code, found) = slapd.search(&["(cn=*)", "sn", "description"]);
        assert_eq!((code, found.len()), (0, ENTRIES));
        for number in 0..ENTRIES {
            let heading = format!("dn: {}\n", name(number));
            let entry = found.iter().find(|entry| entry.contains(&heading));
            let entry = entry.unwrap_or_else(|| panic!("{heading:?} in {found:#?}"));
            let is_new = entry.contains(&format!("\nsn: {round}"));
            let has_description = entry.contains(&format!("description: {round}."));
            assert!(is_new || number >= acknowledged, "lost: {entry}");
            assert_eq!(is_new, has_description, "half a change: {entry}");
        }
    }
    kills_that_left
}

fn kills() -> usize {
    pick(5, 100)
}

#[test]
fn killed_servers_leave_complete_entries_and_no_other_files() {
    if !is_possible("killed_servers_leave_complete_entries_and_no_other_files") {
        return;
    }
    let mut random = Random::for_test("killed_servers_leave_complete_entries_and_no_other_files");
    assert_eq!(killed_changes(Backend::Atomdir, &mut random), 0);
    let of_back_ldif = killed_changes(Backend::Ldif, &mut random);
    println!(
        "MEASURED: {of_back_ldif} of {} kills left temporary files of back-ldif",
        kills()
    );
}
