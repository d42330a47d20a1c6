//! Completion as bash does it: the printed script, loaded by a real bash.

use super::store::{ATOMDIR, Store};
use std::path::Path;
use std::process::Command;

/// Loads the script and calls it as bash does when Tab is pressed in the last word.
const PRESS_TAB: &str = r#"
source <(atomdir completions bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
_clap_complete_atomdir "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn candidates(directory: &Path, words: &[&str]) -> Vec<String> {
    let folder = Path::new(ATOMDIR).parent().expect("a folder");
    let system = std::env::var("PATH").expect("a search path");
    let path = format!("{}:{system}", folder.display());
    let output = Command::new("bash")
        .args(["--norc", "-c", PRESS_TAB, "bash", "atomdir"])
        .args(words)
        .current_dir(directory)
        .env("PATH", path)
        .env_remove("ATOMDIR_TX")
        .output()
        .expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn tab_completes_verbs_transactions_commits_and_directories() {
    let store = Store::new("completion");
    let root = store.path.as_path();
    store.check(&["run", "-q", "--", "touch", "new-file"]);
    let begin = |label| {
        let begun = store.check(&["begin", "-m", label]);
        begun.lines().next().unwrap().to_owned()
    };
    let open = [begin("one"), begin("two")];

    assert!(candidates(root, &["rol"]).contains(&"rollback".into()));
    for verb in ["commit", "abort", "exec", "diff", "status"] {
        let offered = candidates(root, &[verb, ""]);
        for id in &open {
            assert!(offered.contains(id), "{verb}: {offered:?}");
        }
    }
    for verb in ["lock", "unlock"] {
        let offered = candidates(root, &[verb, ""]);
        for word in [open[0].as_str(), open[1].as_str(), "new-file"] {
            assert!(offered.iter().any(|one| one == word), "{verb}: {offered:?}");
        }
        assert_eq!(candidates(root, &[verb, &open[0], "new"]), ["new-file"]);
    }
    store.check(&["savepoint", "before-work", &open[1]]);
    assert_eq!(candidates(root, &["rollback", "bef"]), ["before-work"]);
    assert_eq!(candidates(root, &["show", ""])[0], "1");
    assert_eq!(candidates(root, &["init", "new"]), [""; 1]);
    store.check(&["run", "-q", "--", "mkdir", "new-folder"]);
    assert_eq!(candidates(root, &["init", "new"]), ["new-folder/"]);

    let elsewhere = Path::new("/");
    assert!(!candidates(elsewhere, &["show", ""]).contains(&"1".into()));
    let there = root.to_str().unwrap();
    assert!(candidates(elsewhere, &["-C", there, "show", ""]).contains(&"1".into()));
}

#[test]
fn after_dashes_tab_completes_paths_only() {
    let store = Store::new("completion-paths");
    let root = store.path.as_path();
    store.check(&["run", "-q", "--", "touch", "new-file"]);
    let begun = store.check(&["begin"]);
    let open = begun.lines().next().expect("an id");
    for words in [
        &["diff"][..],
        &["diff", open],
        &["commit"],
        &["abort", open],
        &["undo", "1"],
        &["restore", "1"],
        &["show", "1"],
        &["log"],
    ] {
        let mut offered = candidates(root, &[words, &["--", ""]].concat());
        offered.retain(|path| path != ".");
        assert_eq!(offered, ["file", "new-file"], "{words:?}");
        let second = candidates(root, &[words, &["--", "file", "new"]].concat());
        assert_eq!(second, ["new-file"], "{words:?}");
        let before = candidates(root, &[words, &[""]].concat());
        assert!(!before.contains(&"file".into()), "{words:?}: {before:?}");
    }
    let before = candidates(root, &["abort", open, ""]);
    assert!(before.contains(&"--".into()), "{before:?}");
}

#[test]
fn tab_completes_the_program_of_a_command_and_paths_after_it() {
    let store = Store::new("completion-programs");
    let root = store.path.as_path();
    for words in [
        &["run", "--"][..],
        &["run"],
        &["exec", "1", "--"],
        &["at", "1", "--"],
    ] {
        let programs = candidates(root, &[words, &["mkfif"]].concat());
        assert_eq!(programs, ["mkfifo"], "{words:?}");
        // A file of the store's is no program.
        let paths = candidates(root, &[words, &["cat", "fi"]].concat());
        assert_eq!(paths, ["file"], "{words:?}");
        let own = candidates(root, &[words, &["./fi"]].concat());
        assert_eq!(own, ["./file"], "{words:?}");
    }
}

#[test]
fn tab_offers_no_second_transaction() {
    let store = Store::new("completion-second");
    let root = store.path.as_path();
    store.check(&["run", "-q", "--", "touch", "new-file"]);
    let begin = || {
        let begun = store.check(&["begin"]);
        begun.lines().next().expect("an id").to_owned()
    };
    let (first, second) = (begin(), begin());
    for verb in ["diff", "status", "commit", "abort", "lock", "unlock"] {
        let offered = candidates(root, &[verb, &first, ""]);
        for id in [&first, &second] {
            assert!(!offered.contains(id), "{verb}: {offered:?}");
        }
    }
    let commits = candidates(root, &["diff", "99", ""]);
    assert!(commits.contains(&"1".into()), "{commits:?}");
}

#[test]
fn tab_completes_settings_and_their_words() {
    let elsewhere = Path::new("/");
    let keys = candidates(elsewhere, &["config", ""]);
    assert_eq!(keys[..4], ["allow", "view", "history-age", "history-space"]);
    let views = candidates(elsewhere, &["config", "view", ""]);
    assert_eq!(views[..3], ["auto", "exact", "native"]);
    let ages = candidates(elsewhere, &["config", "history-age", "o"]);
    assert_eq!(ages, ["off"]);
}

#[test]
fn tab_starts_no_service() {
    let store = Store::new("completion-idle");
    store.check(&["run", "-q", "--", "touch", "new-file"]);
    store.check(&["service", "stop", "--abort"]);
    assert!(!candidates(&store.path, &["show", ""]).contains(&"1".into()));
    assert!(store.json(&["service", "status"])["process"].is_null());
}
