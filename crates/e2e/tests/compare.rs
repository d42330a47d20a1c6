//! `atomdir diff A..B`, `show --patch` and `log -- PATH`: patches between commits turn copies of the
//! one state into the other.

#![cfg(test)]

use atomdir_testing::exit_code::NOT_PERMITTED;
use atomdir_testing::{Fixture, User, shell, tools_present};

const PREPARE: &str = "
    mkdir -p etc/conf.d data/old/deep; echo one > etc/one; echo two > etc/two
    ln etc/two data/link; ln -s etc/one pointer; echo kept > data/old/deep/file
    seq 200000 > data/large; echo mode > run.sh; chmod 640 run.sh
    echo placeholder > etc/conf.d/placeholder
";

/// Each step is one commit.
const STEPS: [&str; 5] = [
    "echo new > etc/one; sed -i s/two/zwei/ etc/two; echo created > etc/conf.d/created",
    "rm -r data/old; mkdir data/old; echo other > data/old/other",
    "mv etc/conf.d etc/conf; mv etc/one etc/first; ln -sf etc/first pointer",
    "printf page | dd of=data/large bs=1 seek=200000 conv=notrunc status=none; chmod 755 run.sh",
    "rm -r etc data run.sh pointer; mkdir only; echo left > only/file",
];

#[test]
fn patches_between_commits_turn_one_state_into_the_other() {
    let test = "patches_between_commits_turn_one_state_into_the_other";
    if !tools_present(test, &["git"]) {
        return;
    }
    Fixture::for_each_owner("compare", PREPARE, |one| {
        let scratch = one.scratch.path();
        let save = |number: usize| {
            let copy = format!("rm -rf {number}; mkdir {number}; cp -a base/. {number}");
            shell(scratch, &format!("{copy}; rm -rf {number}/.atomdir"));
        };
        save(0);
        for (number, step) in STEPS.iter().enumerate() {
            one.store.run_exact(step).expect(0);
            save(number + 1);
        }
        let now = STEPS.len();
        let mut ranges = vec![(now, now, format!("{now}..")), (0, now, "0..".to_owned())];
        for from in 0..=now {
            for to in [from.saturating_sub(1), from + 1] {
                if to <= now {
                    ranges.push((from, to, format!("{from}..{to}")));
                }
            }
        }
        for (from, to, range) in ranges {
            let patch = one.store.call(["diff", "--binary", &range]).expect(0);
            std::fs::write(scratch.join("patch"), patch.text()).expect("written");
            shell(
                scratch,
                &format!(
                    "rm -rf copy; cp -a {from} copy; cd copy; git init -q . 2> /dev/null
                     if grep -q '^diff' ../patch; then git apply ../patch; fi
                     rm -rf .git; cd ..; diff -r --no-dereference copy {to}"
                ),
            );
        }
    });
}

#[test]
fn forms_and_paths_of_a_comparison() {
    let fixture = Fixture::new("compare-forms", PREPARE);
    let store = &fixture.store;
    for step in &STEPS[..4] {
        store.run_exact(step).expect(0);
    }
    let text = |words: &[&str]| store.call(words).expect(0).text();
    let names = text(&["diff", "0..2", "--name-status", "--", "etc", "data/old"]);
    assert_eq!(
        names,
        "D data/old/deep\nD data/old/deep/file\nA data/old/other\nA etc/conf.d/created\n\
         M etc/one\nM etc/two\n"
    );
    assert_eq!(
        text(&["diff", "0", "1", "--name-only", "--", "etc/one"]),
        "etc/one\n"
    );
    let json = text(&["--json", "diff", "1..", "--name-only", "--", "run.sh"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (json["from"].as_u64(), json["to"].is_null()),
        (Some(1), true)
    );
    assert_eq!(json["changes"][0]["path"], "run.sh");
    let stat = text(&["diff", "0..1", "--stat", "--", "etc/one"]);
    assert!(stat.contains("etc/one"), "{stat}");
    let shown = text(&["show", "1", "--patch"]);
    assert!(
        shown.contains("commit 1") && shown.contains("+new"),
        "{shown}"
    );
    let json = text(&["--json", "diff", "0..1", "--", "etc/one"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let diff = json["changes"][0]["diff"].as_str().expect("a text");
    assert!(diff.contains("-one\n+new\n"), "{json}");

    let log = text(&["--json", "log", "--", "data/old", "run.sh"]);
    let log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
    let commits: Vec<u64> = log["commits"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|commit| commit["commit"].as_u64())
        .collect();
    assert_eq!(commits, [4, 2]);
    assert_eq!(text(&["list"]), "", "comparing leaves nothing open");

    let user = User::ordinary(fixture.scratch.path());
    let allowed = user.uid.to_string();
    store.call(["config", "allow", &allowed]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let refused = store.call_as(&user, ["diff", "0..1"]);
    refused.expect(NOT_PERMITTED).says(&["look at the past"]);
    let refused = store.call_as(&user, ["show", "1", "--patch"]);
    refused.expect(NOT_PERMITTED);
}

#[test]
fn log_of_a_path_includes_changes_of_the_directories_above_it() {
    let prepare = "mkdir conf; echo 1 > conf/site";
    Fixture::for_each_owner("log-above", prepare, |one| {
        let store = &one.store;
        for step in ["mv conf etc", "rm -r etc"] {
            store.run(step).expect(0);
        }
        store.call(["undo", "2"]).expect(0);
        store.run("mkdir new; echo 1 > new/other").expect(0);
        let commits = |path: &str| {
            let log = store.call(["--json", "log", "--", path]).expect(0).text();
            let log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
            let commits = log["commits"].as_array().expect("a list").iter();
            let commits = commits.filter_map(|commit| commit["commit"].as_u64());
            commits.collect::<Vec<u64>>()
        };
        assert_eq!(commits("etc/site"), [3, 2, 1]);
        assert_eq!(commits("conf/site"), [1]);
        assert_eq!(commits("new/site"), Vec::<u64>::new());
    });
}
