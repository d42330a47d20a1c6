use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::fs;
use std::process::Command;

fn merged(ancestor: &str, mine: &str, theirs: &str) -> Result<String, String> {
    let texts = ThreeWay {
        path: "a".into(),
        ancestor: ancestor.into(),
        ancestor_is_known: true,
        mine: mine.into(),
        theirs: theirs.into(),
    };
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    texts.merged().map(text).map_err(text)
}

#[test]
fn lines_changed_by_one_side_each_are_merged() {
    assert_eq!(
        merged("1\n2\n3\n", "1!\n2\n3\n", "1\n2\n3!\n").as_deref(),
        Ok("1!\n2\n3!\n")
    );
    assert_eq!(merged("", "both\n", "both\n").as_deref(), Ok("both\n"));
    let marked = merged("1\n2\n3\n", "1\nmine\n3\n", "1\ntheirs\n3\n");
    assert!(marked.is_err_and(|text| text.contains("mine") && text.contains("theirs")));
}

/// A text, and two that each differ from it in a place or two. The lines are few
/// different ones, so that many are alike.
fn texts() -> impl Strategy<Value = [String; 3]> {
    let line = || prop::sample::select(vec!["a", "b", "c", "d", "e", "f", ""]);
    let edit = || (0..12_usize, 0..3_usize, prop::collection::vec(line(), 0..3));
    let edits = || prop::collection::vec(edit(), 1..3);
    (prop::collection::vec(line(), 4..12), edits(), edits()).prop_map(|(old, mine, theirs)| {
        let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect();
        let edited = |edits: Vec<(usize, usize, Vec<&'static str>)>| {
            let mut lines = old.clone();
            for (at, removed, inserted) in edits {
                let at = at.min(lines.len());
                let end = (at + removed).min(lines.len());
                lines.splice(at..end, inserted);
            }
            joined(&lines)
        };
        [joined(&old), edited(mine), edited(theirs)]
    })
}

/// `None`: it has found a conflict.
fn merged_by_git(texts: [&str; 3]) -> Option<String> {
    let scratch = atomdir_testing::Scratch::new("merge-file");
    let paths = ["mine", "ancestor", "theirs"].map(|name| scratch.path().join(name));
    for (path, text) in paths.iter().zip(texts) {
        fs::write(path, text).expect("written");
    }
    let mut git = Command::new("git");
    let merged = git.args(["merge-file", "-p"]).args(&paths).output();
    let merged = merged.expect("git runs");
    let text = String::from_utf8(merged.stdout).expect("it is text");
    merged.status.success().then_some(text)
}

#[test]
fn merges_that_git_can_do_have_its_result() {
    let name = "merges_that_git_can_do_have_its_result";
    if !atomdir_testing::tools_present(name, &["git"]) {
        return;
    }
    let mut compared = 0;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..400 {
        let tree = texts().new_tree(&mut runner).expect("it can be made");
        let [ancestor, mine, theirs] = tree.current();
        let ours = merged(&ancestor, &mine, &theirs);
        let git = merged_by_git([&mine, &ancestor, &theirs]);
        if let (Ok(ours), Some(git)) = (ours, git) {
            compared += 1;
            assert_eq!(ours, git, "{ancestor:?} {mine:?} {theirs:?}");
        }
    }
    assert!(compared > 100, "only {compared} merged");
}
