//! `atomdir diff --binary` is a patch that git applies: whatever a transaction did to a
//! tree of files, `git apply` does it to a copy of the tree, and `git apply -R` takes
//! it back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use atomdir_testing::tree::{Kind, Tree};
use atomdir_testing::{Fixture, Random, copy_tree, look, pick, shell, skip, tools_present};

/// Names that git quotes, names that could confuse its headings, and plain ones.
const NAMES: [&str; 9] = [
    "a",
    "b",
    "c d",
    "x b",
    " lead ",
    "quo\"te\\",
    "tab\tnew\nline",
    "größe",
    "--- a",
];
const STEPS_MAX: usize = 14;

#[test]
fn git_apply_turns_a_copy_into_the_committed_tree() {
    if !tools_present("git_apply_turns_a_copy_into_the_committed_tree", &["git"]) {
        return;
    }
    let mut random = Random::for_test("git_apply_turns_a_copy_into_the_committed_tree");
    let has_native =
        has_native_views("git_apply_turns_a_copy_into_the_committed_tree in native views");
    for round in 0..pick(30, 600) {
        let is_native = has_native && round % 3 == 0;
        check(&mut random, if is_native { "native" } else { "exact" });
    }
}

/// The patch holds what the transaction did, and does not take back what others did meanwhile. It is
/// known what `both` was before, since `sed` has read it, and not what the others were.
#[test]
fn diff_leaves_out_what_outside_writers_changed() {
    let prepare = "seq 9 > both; seq 9 > mode; echo theirs > removed; seq 9 > own";
    Fixture::for_each_owner("diff-outside", prepare, |fixture| {
        let (store, base) = (&fixture.store, &fixture.base);
        let change = "sed -i s/2/two/ both; chmod 755 mode; rm removed; sed -i s/2/two/ own";
        let view = store.begin();
        store.exec(&view, change).expect(0);
        shell(base, "echo x >> both; echo x >> mode; echo x >> removed").expect(0);
        let diff = store.call(["diff", &view.id]).expect(0).text();
        let outside = "changed outside since the transaction began";
        let compared = "compared with what is there now:";
        let expected = format!(
            "diff --git a/both b/both\n--- a/both\n+++ b/both\n@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n\
             # mode: {outside}; {compared}\n\
             diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n\
             # @@ -7,4 +7,3 @@\n#  7\n#  8\n#  9\n# -x\n\
             diff --git a/own b/own\n--- a/own\n+++ b/own\n@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n\
             # removed: {outside}; {compared}\n\
             diff --git a/removed b/removed\ndeleted file mode 100644\n\
             # @@ -1,2 +0,0 @@\n# -theirs\n# -x\n"
        );
        assert_eq!(diff, expected);
        let stat = store.call(["diff", &view.id, "--stat"]).expect(0).text();
        assert!(
            stat.contains(" mode    | changed outside meanwhile\n"),
            "{stat}"
        );
        let json = store.call(["--json", "diff", &view.id, "--", "mode"]);
        let contents = r#""contents":"changed_outside","diff":"---"#;
        assert!(json.expect(0).text().contains(contents));
        store.abort(&view).expect(0);
    });
}

/// Whether the stores of tests can have native views. If not, this reports the test as skipped.
fn has_native_views(test: &str) -> bool {
    let fixture = Fixture::new("git-apply-native", "true");
    let possible = fixture.store.run_with(&["--view", "native"], "true");
    if possible.code != 0 {
        skip(test, &format!("no native views here: {possible}"));
    }
    possible.code == 0
}

fn check(random: &mut Random, view: &str) {
    let prepare = script(random, 3 * STEPS_MAX);
    let fixture = Fixture::new("git-apply", &prepare);
    let change = script(random, STEPS_MAX);
    let before = look(&fixture.base);
    let (copy, patch) = (fixture.scratch.join("copy"), fixture.scratch.join("patch"));
    copy_tree(&fixture.base, &copy);
    fs::remove_dir_all(copy.join(".atomdir")).expect("removed");
    let options = ["--view", view, "--on-success", "keep"];
    fixture.store.run_with(&options, &change).expect(0);
    let diff = fixture.store.call(["diff", "--binary"]).expect(0);
    fs::write(&patch, &diff.stdout).expect("written");
    fixture.store.call(["commit", &only(&fixture)]).expect(0);
    let after = look(&fixture.base);
    println!(
        "view {view}\nprepare:\n{prepare}\nchange:\n{change}\npatch:\n{}",
        String::from_utf8_lossy(&diff.stdout)
    );
    apply(&copy, "");
    assert_eq!(files(&look(&copy)), files(&after));
    apply(&copy, "-R");
    assert_eq!(files(&look(&copy)), files(&before), "after git apply -R");
}

fn only(fixture: &Fixture) -> String {
    let status: serde_json::Value =
        serde_json::from_slice(&fixture.store.call(["--json", "list"]).expect(0).stdout)
            .expect("JSON");
    status["transactions"][0]["transaction"].to_string()
}

/// Removes empty directories and applies the patch: git does not know them, and cannot put a
/// file where one is.
fn apply(copy: &Path, option: &str) {
    let script = format!(
        "find . -mindepth 1 -type d -empty -delete
         grep -q '^diff --git' ../patch || exit 0
         git apply --whitespace=nowarn {option} ../patch"
    );
    shell(copy, &script);
}

/// What git distinguishes: contents, links' targets, and whether a file is executable.
fn files(tree: &Tree) -> BTreeMap<PathBuf, String> {
    let entries = tree.entries.iter().filter_map(|(path, entry)| {
        let text = match &entry.kind {
            Kind::File(contents) => format!("{} {contents:?}", entry.mode & 0o100 != 0),
            Kind::Symlink(target) => format!("-> {}", String::from_utf8_lossy(target)),
            _ => return None,
        };
        Some((path.clone(), text))
    });
    entries.collect()
}

/// Random steps, each of which may fail.
fn script(random: &mut Random, steps_max: usize) -> String {
    let steps = 1 + random.below(steps_max);
    let lines: Vec<String> = (0..steps).map(|_| step(random)).collect();
    lines.join("\n") + "\n"
}

fn step(random: &mut Random) -> String {
    let (path, other) = (path(random), path(random));
    let number = random.below(1000);
    let step = match random.below(16) {
        0 | 1 => format!("mkdir -p {path}"),
        2 => format!("seq {number} {} > {path}", number + 30),
        3 => format!("printf 'no newline {number}' > {path}"),
        4 => format!("printf '\\0\\377{number}' > {path}"),
        5 => format!("seq 1 {} | tr 1 '\\000' > {path}", number * 20),
        6 => format!("true > {path}"),
        7 => format!("echo {number} >> {path}"),
        8 => format!("sed -i -e 5d -e 20s/^/x/ {path}"),
        9 => format!("rm -rf {path}"),
        10 | 11 => format!("mv -T {path} {other}"),
        12 => format!("mv -T {path} swap && mv -T {other} {path}; mv -T swap {other}"),
        13 => format!(
            "chmod {} {path}",
            random.choose(&["644", "755", "600", "4711"])
        ),
        14 => format!("ln -s 'target {number}' {path}"),
        _ => format!("ln {path} {other}"),
    };
    format!("{{ {step}; }} 2> /dev/null || true")
}

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    let names: Vec<&str> = (0..depth).map(|_| *random.choose(&NAMES)).collect();
    format!("'./{}'", names.join("/"))
}
