//! The inode numbers that programs see in views are below 2^53, and equal ones mean one file.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use atomdir_testing::{Fixture, users_can_mount};

const TREE: &str = "
mkdir -p d/e f g
for i in 1 2 3 4 5 6; do echo $i > f/$i; ln f/$i g/$i; done
echo a > d/a; echo b > d/e/b; echo c > d/c; ln -s a d/link; mkfifo d/pipe
";

/// Old files with one name are changed, moved and given other attributes. Old directories get new
/// entries and other modes. New objects come, also by several names.
const CHANGES: &str = "
echo more >> d/a; chmod 600 d/e/b; mv d/c moved; touch d/e/new d/new; chmod 700 d/e
mkdir n; echo n > n/one; ln n/one n/two; ln n/one d/three; ln -s one n/link; mkfifo n/pipe
rm f/6; echo 6 > f/6
";

/// As fstatat(2), statx(2) and getdents(2) report them.
const LOOK: &str = r#"
find . -printf '%D:%i %p\n'
find . | while read -r path; do stat -c '%d:%i %n' "$path"; done
ls -aifU1R . | sed -n 's/^ *\([0-9][0-9]*\) .*/0:\1 listed/p'
"#;

/// The files with several names.
fn expected(changed: bool) -> BTreeSet<BTreeSet<String>> {
    let set = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| format!("./{name}")).collect()
    };
    let old = |number: u32| set(&[&format!("f/{number}"), &format!("g/{number}")]);
    match changed {
        false => (1..7).map(old).collect(),
        true => (1..6)
            .map(old)
            .chain([set(&["n/one", "n/two", "d/three"])])
            .collect(),
    }
}

fn check(shown: &str, changed: bool) {
    let mut paths: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in shown.lines() {
        let (numbers, path) = line.split_once(' ').expect("numbers and a path");
        let (_, inode) = numbers.split_once(':').expect("a device and an inode");
        let inode: u64 = inode.parse().expect("a number");
        assert!(inode < 1 << 53, "{line}");
        if path != "listed" {
            paths.entry(numbers).or_default().insert(path.to_owned());
        }
    }
    let several = paths.into_values().filter(|paths| paths.len() > 1);
    assert_eq!(
        several.collect::<BTreeSet<_>>(),
        expected(changed),
        "{shown}"
    );
}

#[test]
fn each_number_is_below_2_to_the_53_and_stands_for_one_file() {
    if !users_can_mount("each_number_is_below_2_to_the_53_and_stands_for_one_file") {
        return;
    }
    Fixture::for_each_view("inode-numbers", TREE, |fixture, view| {
        let run = |script: &str| fixture.store.run_with(&["--view", view], script);
        check(&run(LOOK).expect(0).text(), false);
        let changed = run(&format!("{{ {CHANGES} }} >&2; {LOOK}"));
        check(&changed.expect(0).text(), true);
        check(&run(LOOK).expect(0).text(), true);
    });
}
