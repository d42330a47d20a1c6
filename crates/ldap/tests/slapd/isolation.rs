//! Searches and changes run at the same time.

use crate::support::{Backend, SUFFIX, Slapd, is_possible};
use atomdir_testing::{capture_output, wait_until};
use std::io::Write;
use std::ops::Range;
use std::process::Stdio;

const DIRECTORIES: usize = 4;
const ENTRIES: usize = 60;

fn name(number: usize) -> String {
    format!("cn={number},ou={},{SUFFIX}", number % DIRECTORIES)
}

/// One client adds entries, one after the other, in several directories. A search that runs
/// meanwhile finds the first entries added, with no gaps. The client gets the second half of its
/// entries when a search has found some, but not all.
#[test]
fn a_search_shows_one_state_of_the_database() {
    if !is_possible("a_search_shows_one_state_of_the_database") {
        return;
    }
    let slapd = Slapd::start("isolation", Backend::Atomdir);
    let mut first = format!("dn: {SUFFIX}\nchangetype: add\nobjectClass: domain\ndc: example\n\n");
    for number in 0..DIRECTORIES {
        first.push_str(&format!(
            "dn: ou={number},{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: {number}\n\n"
        ));
    }
    slapd.change(&first).expect(0);
    let additions = |numbers: Range<usize>| -> String {
        let addition = |number| {
            let name = name(number);
            format!("dn: {name}\nchangetype: add\nobjectClass: person\nsn: s\ncn: {number}\n\n")
        };
        numbers.map(addition).collect()
    };
    let mut command = slapd.client("ldapmodify");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut adding = command.spawn().unwrap();
    let mut input = adding.stdin.take();
    let mut feed = |numbers| {
        let input = input.as_mut().unwrap();
        input.write_all(additions(numbers).as_bytes()).unwrap();
    };
    feed(0..ENTRIES / 2);
    wait_until("a search that finds a part of the entries", || {
        assert_eq!(adding.try_wait().unwrap(), None, "ldapmodify has ended");
        (1..ENTRIES).contains(&count_added(&slapd))
    });
    feed(ENTRIES / 2..ENTRIES);
    drop(input);
    wait_until("the end of ldapmodify", || {
        count_added(&slapd);
        adding.try_wait().unwrap().is_some()
    });
    assert!(adding.wait().unwrap().success());
    assert_eq!(count_added(&slapd), ENTRIES);
}

/// Searches once. How many entries it finds, which must be the first that were added.
fn count_added(slapd: &Slapd) -> usize {
    let (code, found) = slapd.search(&["(cn=*)", "cn"]);
    assert_eq!(code, 0);
    let number = |entry: &String| entry.lines().next()?.strip_prefix("cn: ")?.parse().ok();
    let mut numbers: Vec<usize> = found.iter().filter_map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..found.len()).collect::<Vec<_>>());
    numbers.len()
}

/// Several clients add values to one entry. Afterwards it has every value.
#[test]
fn concurrent_changes_of_one_entry_are_all_made() {
    if !is_possible("concurrent_changes_of_one_entry_are_all_made") {
        return;
    }
    let slapd = Slapd::start("concurrent", Backend::Atomdir);
    let entry = format!(
        "dn: {SUFFIX}\nchangetype: add\nobjectClass: domain\nobjectClass: extensibleObject\n\
         dc: example\n\n"
    );
    slapd.change(&entry).expect(0);
    let (clients, each) = (4, 10);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let slapd = &slapd;
            scope.spawn(move || {
                let file = slapd.scratch.join(format!("changes-{client}"));
                let change = |number| {
                    format!("dn: {SUFFIX}\nchangetype: modify\nadd: cn\ncn: {client}-{number}\n\n")
                };
                let changes: String = (0..each).map(change).collect();
                std::fs::write(&file, changes).unwrap();
                capture_output(slapd.client("ldapmodify").arg("-f").arg(&file)).expect(0);
            });
        }
    });
    let (_, found) = slapd.search(&["-s", "base", "cn"]);
    assert_eq!(found[0].matches("cn: ").count(), clients * each);
}
