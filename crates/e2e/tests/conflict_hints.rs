#![cfg(test)]

//! Whatever a message advises about a conflict helps. In every state of a file in conflict, each hint of
//! each message is followed as a user would follow it, and so are the hints of the messages that
//! come then. Every way must end with the changes landed or given up, and none may lead back to advice
//! that was followed before.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, Outcome, Random, as_user, capture_output, pick, shell};

const PREPARE: &str = "true";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Both sides change other lines.
    Text,
    /// Both change the same line.
    Clash,
    Binary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mine {
    InPlace,
    Replace,
    Attributes,
    Create,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theirs {
    InPlace,
    Replace,
    Remove,
    Move,
    Create,
    RemoveDirectory,
}

#[derive(Debug, Clone, Copy)]
struct State {
    contents: Contents,
    mine: Mine,
    theirs: Theirs,
    by_commit: bool,
}

impl State {
    fn all() -> Vec<State> {
        let mut all = Vec::new();
        for contents in [Contents::Text, Contents::Clash, Contents::Binary] {
            for mine in [Mine::InPlace, Mine::Replace, Mine::Attributes, Mine::Create] {
                for theirs in [
                    Theirs::InPlace,
                    Theirs::Replace,
                    Theirs::Remove,
                    Theirs::Move,
                    Theirs::Create,
                    Theirs::RemoveDirectory,
                ] {
                    for by_commit in [false, true] {
                        all.push(State {
                            contents,
                            mine,
                            theirs,
                            by_commit,
                        });
                    }
                }
            }
        }
        all.retain(|state| {
            let creates = state.mine == Mine::Create;
            creates == (state.theirs == Theirs::Create)
        });
        all
    }

    /// The contents that a side makes of the old ones.
    fn text(&self, side: &str) -> String {
        let line = match (self.contents, side) {
            (Contents::Clash, _) => 5,
            (_, "mine") => 9,
            _ => 1,
        };
        match self.contents {
            Contents::Binary => format!("printf '{side}\\000'"),
            _ if self.mine == Mine::Create => format!("echo {side}"),
            _ => format!("seq 9 | sed s/{line}/{side}/"),
        }
    }

    fn do_mine(&self, file: &str) -> String {
        let text = self.text("mine");
        let change = match self.mine {
            Mine::InPlace => format!("cat {file} > /dev/null; {text} > {file}"),
            Mine::Replace => {
                format!("cat {file} > {file}.new; {text} > {file}.new; mv {file}.new {file}")
            }
            Mine::Attributes => format!("chmod 600 {file}"),
            Mine::Create => format!("{text} > {file}"),
        };
        format!("{change}; echo mine > {}", other(file))
    }

    fn do_theirs(&self, file: &str) -> String {
        let text = self.text("theirs");
        let directory = file.split('/').next().unwrap_or_default();
        match self.theirs {
            Theirs::InPlace if self.mine == Mine::Attributes => format!("chmod 604 {file}"),
            Theirs::InPlace | Theirs::Create => format!("{text} > {file}"),
            Theirs::Replace => format!("{text} > {file}.theirs; mv {file}.theirs {file}"),
            Theirs::Remove => format!("rm {file}"),
            Theirs::Move => format!("mv {file} {file}.moved"),
            Theirs::RemoveDirectory => format!("rm -r {directory}"),
        }
    }

    fn has_old_file(&self) -> bool {
        self.mine != Mine::Create
    }

    fn both_have_texts(&self) -> bool {
        let is_text = self.contents != Contents::Binary && self.mine != Mine::Attributes;
        let is_there = matches!(
            self.theirs,
            Theirs::InPlace | Theirs::Replace | Theirs::Create
        );
        is_text && is_there
    }
}

/// Another file that the transaction makes, elsewhere.
fn other(file: &str) -> String {
    file.replace('/', "-")
}

/// The advice of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Commit,
    Conflicts,
    Patch,
    Diff,
    Merge,
    Markers,
    Tool,
    Edit,
    TakeMine,
    TakeTheirs,
    Land,
    DropAndRefresh,
    Refresh,
    Abort,
}

impl Step {
    /// A message that only shows something may come more than once.
    fn only_shows(self) -> bool {
        matches!(self, Step::Conflicts | Step::Patch | Step::Diff)
    }
}

/// The steps that a message advises.
fn advised(message: &str, id: &str) -> Vec<Step> {
    let command = |verb: &str| format!("`atomdir {verb} {id}");
    let mut steps = Vec::new();
    let mut add = |step: Step, text: &str| {
        if message.contains(text) && !steps.contains(&step) {
            steps.push(step);
        }
    };
    add(
        Step::Commit,
        &format!("{}` can commit it", command("commit")),
    );
    add(Step::Conflicts, &format!("{}`", command("conflicts")));
    add(Step::Patch, &format!("{} --patch`", command("conflicts")));
    add(Step::Diff, &format!("{}`", command("diff")));
    add(
        Step::Merge,
        &format!("{} --merge` merges", command("commit")),
    );
    add(Step::Markers, "--markers");
    add(Step::Tool, "--tool");
    add(Step::Edit, "edit the marked files");
    add(Step::TakeMine, "take a side: --take-mine");
    add(Step::TakeMine, "--take-mine N");
    add(Step::TakeTheirs, "or --take-theirs");
    add(Step::TakeTheirs, "--take-theirs N");
    add(Step::TakeTheirs, "take their side");
    add(Step::TakeTheirs, "--take-theirs all");
    add(Step::Land, &format!("{} -- ", command("commit")));
    add(Step::DropAndRefresh, &format!("{} -- ", command("abort")));
    add(Step::Abort, &format!("{}`", command("abort")));
    steps
}

/// A transaction in conflict about one file.
struct Case<'a> {
    one: &'a Fixture,
    state: State,
    file: String,
    id: String,
}

impl<'a> Case<'a> {
    fn new(one: &'a Fixture, view: &'a str, state: State, number: usize) -> Case<'a> {
        let file = format!("d{number}/f");
        let outside = |script: &str| {
            let owner = fs::metadata(&one.base).expect("it is there").uid();
            as_user(owner, || shell(&one.base, script));
        };
        outside(&format!("mkdir d{number}"));
        if state.has_old_file() {
            let old = match state.contents {
                Contents::Binary => "printf 'old\\000'",
                _ => "seq 9",
            };
            outside(&format!("{old} > {file}"));
        }
        let mine = state.do_mine(&file);
        let id = match view {
            "exact" => {
                let view = one.store.begin();
                one.store.exec(&view, &mine).expect(0);
                view.id
            }
            _ => {
                let options = ["--view", view, "--on-success", "keep"];
                one.store.run_with(&options, &mine).expect(0);
                let open = one.store.call(["--json", "list"]).expect(0).text();
                let open: serde_json::Value = serde_json::from_str(&open).expect("it is JSON");
                let open = open["transactions"].as_array().expect("a list");
                assert_eq!(open.len(), 1, "{open:?}");
                open[0]["transaction"].to_string()
            }
        };
        let theirs = state.do_theirs(&file);
        match state.by_commit {
            true => drop(one.store.run(&theirs).expect(0)),
            false => outside(&theirs),
        }
        Case {
            one,
            state,
            file,
            id,
        }
    }

    fn call(&self, arguments: &[&str]) -> Outcome {
        let (verb, rest) = arguments.split_first().expect("a verb");
        let mut all = vec![*verb, &self.id];
        all.extend(rest);
        self.one.store.call(all)
    }

    fn exec(&self, script: &str) -> Outcome {
        self.call(&["exec", "--", "/bin/sh", "-ec", script])
    }

    fn count(&self) -> usize {
        let listed = self.call(&["conflicts", "--json"]).expect(0).text();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
        listed["conflicts"].as_array().map_or(0, Vec::len)
    }

    fn is_open(&self) -> bool {
        let open = self.one.store.call(["--json", "list"]).expect(0).text();
        let open: serde_json::Value = serde_json::from_str(&open).expect("it is JSON");
        let mut open = open["transactions"].as_array().expect("a list").iter();
        open.any(|one| one["transaction"].as_u64() == self.id.parse().ok())
    }

    fn take(&self, step: Step) -> Outcome {
        match step {
            Step::Commit => self.call(&["commit"]),
            Step::Conflicts => self.call(&["conflicts"]),
            Step::Patch => self.call(&["conflicts", "--patch"]),
            Step::Diff => self.call(&["diff"]),
            Step::Merge => self.call(&["commit", "--merge"]),
            Step::Markers => self.call(&["commit", "--merge", "--markers"]),
            Step::Tool => {
                let arguments = ["commit", &self.id, "--merge", "--tool"];
                let mut merge = self.one.store.command(arguments);
                capture_output(merge.env("ATOMDIR_MERGE", "cat $LOCAL $REMOTE > $MERGED"))
            }
            Step::Edit => {
                let edit = "sed -i '/^[<|=>]\\{7\\}/d'";
                self.exec(&format!(
                    "grep -q '^[<]\\{{7\\}} ' {0} && {edit} {0}",
                    self.file
                ))
                .expect(0);
                self.call(&["commit", "--take-mine", "1", "--merge"])
            }
            Step::TakeMine => {
                self.count();
                self.call(&["commit", "--take-mine", "all"])
            }
            Step::TakeTheirs => {
                self.count();
                self.call(&["commit", "--take-theirs", "all"])
            }
            Step::Land => self.call(&["commit", "--", &other(&self.file)]),
            Step::DropAndRefresh => {
                self.call(&["abort", "--", &self.file]).expect(0);
                self.call(&["refresh"])
            }
            Step::Refresh => self.call(&["refresh"]),
            Step::Abort => self.call(&["abort"]),
        }
    }

    fn end(&self) {
        if self.is_open() {
            self.call(&["abort"]).expect(0);
        }
    }
}

/// Follows all advice from a first step on.
fn follow(one: &Fixture, view: &str, state: State, number: &mut usize) {
    let mut first = vec![
        Step::Commit,
        Step::Conflicts,
        Step::Patch,
        Step::Diff,
        Step::Merge,
    ];
    first.extend([Step::Markers, Step::Tool]);
    if view == "exact" {
        first.push(Step::Refresh);
    }
    let mut ways: VecDeque<Vec<Step>> = first.into_iter().map(|step| vec![step]).collect();
    let mut seen: BTreeSet<(Option<Step>, Step)> = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        *number += 1;
        let case = Case::new(one, view, state, *number);
        let said = format!("{view}, {:?}, {way:?}", case.state);
        let conflicts = case.count();
        if conflicts == 0 {
            // Both sides go together.
            case.end();
            return;
        }
        let mut outcome = None;
        for step in &way {
            outcome = Some(case.take(*step));
        }
        let outcome = outcome.expect("a way has a step");
        let last = *way.last().expect("a way has a step");
        let message = format!("{}{}", outcome.text(), outcome.error_text());
        if matches!(last, Step::Patch | Step::Diff) && state.both_have_texts() {
            assert!(message.contains("+mine"), "{said}: {outcome}");
            let shows_theirs = message.contains("+theirs") || message.contains("-theirs");
            assert!(last == Step::Diff || shows_theirs, "{said}: {outcome}");
        }
        if outcome.code == 0 && !last.only_shows() {
            let is_better = !case.is_open() || case.count() < conflicts || last == Step::Land;
            assert!(is_better, "{said}: {outcome}");
            case.end();
            continue;
        }
        let expected: &[i32] = if last.only_shows() {
            &[0]
        } else {
            &[CONFLICT, USAGE]
        };
        assert!(expected.contains(&outcome.code), "{said}: {outcome}");
        let advice = advised(&message, &case.id);
        if !matches!(last, Step::Diff) {
            assert!(!advice.is_empty(), "{said}: no advice: {outcome}");
        }
        for step in advice {
            if step.only_shows() && way.contains(&step) {
                continue;
            }
            assert!(!way.contains(&step), "{said}: {step:?} again: {outcome}");
            let before = way.last().copied().filter(|before| !before.only_shows());
            if seen.insert((before, step)) {
                ways.push_back([&way[..], &[step]].concat());
            }
        }
        case.end();
    }
}

/// `./test --full` tries all states.
#[test]
fn every_hint_about_a_conflict_helps() {
    let test = "every_hint_about_a_conflict_helps";
    Fixture::for_each_view("conflict-hints", PREPARE, |one, view| {
        let mut random = Random::for_test(test);
        let mut number = 0;
        for state in State::all() {
            if random.chance(pick(12, 1)) {
                follow(one, view, state, &mut number);
            }
        }
        assert!(number > 0, "no state was tried");
        fs::metadata(&one.base).expect("the store is there");
    });
}
