//! The library reports the same about past commits in the program's own process and through the
//! service, and the command prints the same.

use atomdir::{ChangedPath, Door, Durability, Sequence, Store, StoreOptions};
use atomdir_testing::{call_here, for_each_user_of_a_store};
use serde_json::Value;
use std::path::Path;

const PATHS: [&[&str]; 6] = [
    &[],
    &["tree"],
    &["moved/deep/leaf"],
    &["tree/deep", "link"],
    &["none"],
    &["moved"],
];

/// Commits of every kind: renamed directories, several names, other types, equal times, and a
/// removal that is undone and repeated.
fn make_commits(base: &Path) {
    for script in [
        "mkdir -p tree/deep; echo leaf > tree/deep/leaf; ln tree/deep/leaf other",
        "mv tree moved; echo more >> moved/deep/leaf",
        "rm other; mkdir other; touch other/inside; ln -s other link",
        "chmod 700 moved/deep; ln -sfn moved link",
        "rm -r moved",
        "touch -r other/inside stamp; echo 1 > same; touch -r stamp same",
        "printf '2\\n' > same; touch -r stamp same",
    ] {
        call_here(base, &["run", "--", "sh", "-ec", script]).expect(0);
    }
    for undone in ["5", "8"] {
        call_here(base, &["undo", undone]).expect(0);
    }
}

fn described(changes: &[ChangedPath]) -> Vec<Value> {
    let describe = |change: &ChangedPath| {
        let from = change.from.as_ref().map(|from| from.display().to_string());
        let path = change.path.display().to_string();
        serde_json::json!([change.change.letter().to_string(), path, from])
    };
    changes.iter().map(describe).collect()
}

/// Everything that the library reports, in the same order as [`said_by_command`].
fn said_by_library(store: &Store) -> Vec<Value> {
    let mut said = Vec::new();
    for paths in PATHS {
        let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
        let log = store.log_of(&paths, None, usize::MAX).expect("listed");
        let newest = store.log_of(&paths, Some(Sequence(5)), 2).expect("listed");
        let older = log.iter().filter(|commit| commit.sequence < Sequence(5));
        assert!(older.take(2).eq(&newest));
        said.push(log.iter().map(|commit| commit.sequence.0).collect());
    }
    let commits = store.log(usize::MAX).expect("listed");
    for commit in &commits {
        let shown = store.show(commit.sequence).expect("shown");
        assert_eq!(shown.summary, *commit);
        let then = store.commit_at(commit.time.into()).expect("found");
        assert_eq!(then, commit.sequence);
        said.push(described(&shown.changes).into());
        for to in commits.iter().map(|to| Some(to.sequence)).chain([None]) {
            let found = store.diff(commit.sequence, to).expect("compared");
            assert_eq!(found.not_as_then, []);
            said.push(described(&found.changes).into());
        }
    }
    said
}

/// The same, from the command's output.
fn said_by_command(base: &Path) -> Vec<Value> {
    let call = |arguments: &[&str]| -> Value {
        let arguments = [&["--json"], arguments].concat();
        let text = call_here(base, &arguments).expect(0).text();
        serde_json::from_str(&text).expect("JSON")
    };
    let numbers = |log: &Value| -> Vec<u64> {
        let commits = log["commits"].as_array().expect("a list").iter();
        commits
            .map(|commit| commit["commit"].as_u64().expect("a number"))
            .collect()
    };
    let changes = |value: &Value| -> Value {
        let changes = value["changes"].as_array().expect("a list").iter();
        let changes = changes
            .map(|change| serde_json::json!([change["change"], change["path"], change["from"]]));
        changes.collect()
    };
    let mut said = Vec::new();
    for paths in PATHS {
        let log = call(&[&["log", "--"], paths].concat());
        said.push(numbers(&log).into());
    }
    let commits = numbers(&call(&["log"]));
    for commit in &commits {
        said.push(changes(&call(&["show", &commit.to_string()])));
        for to in commits.iter().map(u64::to_string).chain([String::new()]) {
            let range = format!("{commit}..{to}");
            said.push(changes(&call(&["diff", &range, "--name-status"])));
        }
    }
    said
}

#[test]
fn library_and_command_say_the_same_of_past_commits() {
    let name = "library_and_command_say_the_same_of_past_commits";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        make_commits(base);
        let open = |door| StoreOptions::new().door(door).open(base);
        call_here(base, &["service", "start"]).expect(0);
        let served = open(Door::Service).expect("it runs");
        let said = said_by_library(&served);
        drop(served);
        assert_eq!(said, said_by_command(base));
        call_here(base, &["service", "stop"]).expect(0);
        let embedded = open(Door::Embedded).expect("opened");
        assert_eq!(said, said_by_library(&embedded));
        embedded.close().expect("closed");
    });
}

/// `off` forgets all commits. The default age after that does not bring them back.
const SETTINGS: [(&str, &str); 4] = [
    ("view", "exact"),
    ("history-space", "500M"),
    ("history-age", "off"),
    ("history-age", ""),
];

/// What is kept of the commits, and the settings, after each of these changes.
fn kept_by_library(store: &Store) -> Vec<Value> {
    let mut said = Vec::new();
    for setting in SETTINGS {
        store.set_setting(setting.0, setting.1).expect("set");
        said.push(serde_json::json!(store.settings().expect("read")));
        let kept = store.prune(None).expect("pruned");
        said.push(serde_json::json!(kept.map(|kept| {
            let oldest = kept.oldest.map(|(sequence, _)| sequence.0);
            serde_json::json!([kept.commits, oldest])
        })));
    }
    said
}

/// The same, from the command's output.
fn kept_by_command(base: &Path) -> Vec<Value> {
    let call = |arguments: &[&str]| -> Value {
        let arguments = [&["--json"], arguments].concat();
        let text = call_here(base, &arguments).expect(0).text();
        serde_json::from_str(&text).expect("JSON")
    };
    let mut said = Vec::new();
    for setting in SETTINGS {
        call_here(base, &["config", setting.0, setting.1]).expect(0);
        said.push(call(&["config"]));
        let kept = call(&["prune"]);
        said.push(match kept.is_null() {
            true => kept,
            false => serde_json::json!([kept["commits"], kept["oldest_commit"]]),
        });
    }
    said
}

/// Three stores with the same commits.
#[test]
fn library_and_command_say_the_same_of_settings_and_of_what_is_kept() {
    let name = "library_and_command_say_the_same_of_settings_and_of_what_is_kept";
    for_each_user_of_a_store(name, |one| {
        let bases = ["embedded", "served", "command"].map(|way| one.path().join(way));
        for base in &bases {
            std::fs::create_dir(base).expect("made");
            atomdir::init(base, None).expect("a store");
            make_commits(base);
        }
        let [embedded, served, command] = &bases;
        let said = kept_by_command(command);
        assert_eq!(said[1], serde_json::json!([9, 1]));
        assert!(said[5].is_null(), "nothing is kept");
        let store = StoreOptions::new().door(Door::Service).open(served);
        assert_eq!(said, kept_by_library(&store.expect("it runs")));
        call_here(embedded, &["service", "stop"]).expect(0);
        let store = StoreOptions::new().door(Door::Embedded).open(embedded);
        let store = store.expect("opened");
        assert_eq!(said, kept_by_library(&store));
        store.close().expect("closed");
        for base in [served, command] {
            call_here(base, &["service", "stop"]).expect(0);
        }
    });
}

/// The service sends so long a list in several messages.
#[test]
fn long_log_is_whole_and_in_order() {
    let name = "long_log_is_whole_and_in_order";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        call_here(base, &["service", "start"]).expect(0);
        let open = |door| StoreOptions::new().door(door).open(base);
        let served = open(Door::Service).expect("it runs");
        for number in 0..200 {
            let options = served.transaction().durability(Durability::Lazy);
            let tx = options.label([b'x'; 4096]).begin().expect("begun");
            let path = ["even", "odd"][number % 2];
            tx.write(path, number.to_string()).expect("written");
            tx.commit().expect("nobody is in the way");
        }
        let said = |store: &Store| {
            let limits = [usize::MAX, 150, 1, 0];
            limits.map(|limit| {
                let log = store
                    .log_of(&["odd".as_ref()], None, limit)
                    .expect("listed");
                log.iter()
                    .map(|commit| commit.sequence.0)
                    .collect::<Vec<u64>>()
            })
        };
        let log = said(&served);
        let newest_first = (1..=100).rev().map(|number| 2 * number);
        assert!(log[0].iter().copied().eq(newest_first), "{log:?}");
        assert_eq!(served.log(usize::MAX).expect("listed").len(), 200);
        drop(served);
        call_here(base, &["service", "stop"]).expect(0);
        let embedded = open(Door::Embedded).expect("opened");
        assert_eq!(log, said(&embedded));
        embedded.close().expect("closed");
    });
}
