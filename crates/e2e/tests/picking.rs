#![cfg(test)]

//! Some changes of a transaction land, chosen one by one on a terminal.

use std::fs;

use atomdir_testing::{Fixture, OnTerminal, Store, tools_present};

const PREPARE: &str = "seq 30 > long; echo old > other; chmod 644 *";
const CHANGE: &str =
    "sed -i -e 1s/.*/first/ -e 30s/.*/last/ long; echo new > other; echo new > new";

fn answer(asked: &mut OnTerminal, answers: &[(&str, &str)]) {
    for (prompt, answer) in answers {
        asked.wait_for(prompt);
        asked.type_in(&format!("{answer}\n"));
    }
}

/// The lines of `long` that have changed in the base, and what else is new there.
fn landed(fixture: &Fixture) -> Vec<&'static str> {
    let long = fs::read_to_string(fixture.base.join("long")).expect("readable");
    let other = fs::read_to_string(fixture.base.join("other")).expect("readable");
    [
        ("first", long.starts_with("first\n2\n")),
        ("last", long.ends_with("\n29\nlast\n")),
        ("other", other == "new\n"),
        ("new", fixture.base.join("new").exists()),
    ]
    .into_iter()
    .filter_map(|(name, is_there)| is_there.then_some(name))
    .collect()
}

fn changes(store: &Store) -> String {
    store.call(["diff", "--name-status"]).expect(0).text()
}

#[test]
fn changes_and_hunks_land_one_by_one() {
    Fixture::for_each_view("picking", PREPARE, |fixture, view| {
        let store = &fixture.store;
        let run = format!("run --view {view} --ask -- sh -c '{CHANGE}'");
        let mut asked = OnTerminal::start(store, &run);
        answer(
            &mut asked,
            &[
                ("[K]eep open: ", "p"),
                ("Land hunk 1 of 2? ", "n"),
                ("Land hunk 2 of 2? ", "what"),
                ("Land hunk 2 of 2? ", "y"),
                ("Land this change? ", "y"),
                ("Land hunk 1 of 1? ", "n"),
                ("[K]eep open: ", "k"),
            ],
        );
        let printed = asked.end();
        assert!(printed.contains("-30\r\n+last"), "{printed}");
        assert!(printed.contains("2 changes; transaction"), "{printed}");
        assert_eq!(landed(fixture), ["last", "new"]);
        assert_eq!(changes(store), "M long\nM other\n");
        let mut asked = OnTerminal::start(store, "commit --patch");
        answer(&mut asked, &[("Land hunk 1 of 1? ", "n"), ("hunk", "q")]);
        asked.end();
        assert_eq!(landed(fixture), ["last", "new"]);
        let mut asked = OnTerminal::start(store, "commit --patch -- other");
        answer(&mut asked, &[("Land hunk 1 of 1? ", "a")]);
        asked.end();
        assert_eq!(landed(fixture), ["last", "other", "new"]);
        assert_eq!(changes(store), "M long\n");
        store.call(["commit"]).expect(0);
        assert_eq!(landed(fixture), ["first", "last", "other", "new"]);
    });
}

#[test]
fn changes_of_a_shell_land_one_by_one() {
    Fixture::for_each_view("picking-shell", PREPARE, |fixture, view| {
        let store = &fixture.store;
        let mut asked = OnTerminal::start(store, &format!("shell --view {view}"));
        asked.wait_for("(transaction ");
        asked.type_in(&format!("{CHANGE}; exit\n"));
        answer(
            &mut asked,
            &[
                ("[K]eep open: ", "p"),
                ("Land hunk 1 of 2? ", "?"),
                ("Land hunk 1 of 2? ", "d"),
                ("Land this change? ", "?"),
                ("Land this change? ", "y"),
                ("Land hunk 1 of 1? ", "y"),
                ("[K]eep open: ", "k"),
            ],
        );
        let printed = asked.end();
        // A change of something that is not a text has no hunks.
        let helps = ["further hunks of this file", "and everything from here on"];
        let times = helps.map(|help| printed.matches(help).count());
        assert_eq!(times, [1, 4], "{printed}");
        assert_eq!(landed(fixture), ["other", "new"]);
        assert_eq!(changes(store), "M long\n");
        store.call(["commit"]).expect(0);
        assert_eq!(landed(fixture), ["first", "last", "other", "new"]);
    });
}

#[test]
fn a_killed_choice_leaves_the_whole_text_in_the_view() {
    if !tools_present("a killed choice", &["strace"]) {
        return;
    }
    Fixture::for_each_owner("picking-killed", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store
            .exec(
                &view,
                "sed -i -e 1i0 long; seq 31 40 >> long; cp long wanted",
            )
            .expect(0);
        // The chosen text is shorter than the file. So the command truncates the file after it
        // has overwritten it, and is killed by strace at that call.
        let killing = "strace -qqo /dev/null -e trace=ftruncate -e inject=ftruncate:signal=KILL";
        let commit = format!("commit --patch {} -- long", view.id);
        let mut asked = OnTerminal::start_under(store, killing, &commit);
        answer(
            &mut asked,
            &[("Land hunk 1 of 2? ", "n"), ("Land hunk 2 of 2? ", "y")],
        );
        asked.end();
        store.exec(&view, "cmp long wanted").expect(1);
        store.exec(&view, "cmp long.whole wanted").expect(0);
        store.call(["abort", &view.id]).expect(0);
    });
}

/// The chosen hunks conflict. Afterwards the view has the whole text again.
#[test]
fn a_refused_choice_leaves_everything_in_the_transaction() {
    Fixture::for_each_owner("picking-conflict", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store.exec(&view, CHANGE).expect(0);
        store.run("sed -i 30s/.*/theirs/ long").expect(0);
        let mut asked = OnTerminal::start(store, &format!("commit --patch {}", view.id));
        answer(
            &mut asked,
            &[
                ("Land hunk 1 of 2? ", "n"),
                ("hunk 2", "y"),
                ("change", "q"),
            ],
        );
        let printed = asked.end();
        assert!(printed.contains("conflict"), "{printed}");
        assert_eq!(changes(store), "M long\nA new\nM other\n");
        let ends = store
            .exec(&view, "head -n 1 long; tail -n 1 long")
            .expect(0);
        assert_eq!(ends.text(), "first\nlast\n");
        store.call(["abort", &view.id]).expect(0);
    });
}

/// What git keeps in `.git` is one question, and the last one.
#[test]
fn a_repository_is_folded_and_paths_choose() {
    if !tools_present("picking-git", &["git"]) {
        return;
    }
    let prepare = "git init -q . && git config user.email a@example.org && git config user.name a
                   echo old > page; echo old > other; git add . && git commit -qm first";
    Fixture::for_each_view("picking-git", prepare, |fixture, view| {
        let store = &fixture.store;
        let change = "echo new > page; echo new > other; chmod 700 other; git commit -qam second";
        let run = format!("run --view {view} --ask -- sh -ec '{change}'");
        let mut asked = OnTerminal::start(store, &run);
        answer(
            &mut asked,
            &[("[K]eep open: ", "what"), ("[K]eep open: ", "p nothing")],
        );
        asked.wait_for("nothing has changed at nothing");
        answer(&mut asked, &[("[K]eep open: ", "k")]);
        let printed = asked.end();
        let folded = printed.contains("* .git/: ") && !printed.contains(".git/index");
        assert!(folded && printed.contains("p PATH...  "), "{printed}");

        let mut asked = OnTerminal::start(store, "commit --patch -- other .git");
        asked.wait_for("It lands as a whole: its mode");
        answer(&mut asked, &[("Land this change? ", "n")]);
        asked.wait_for("* .git/: ");
        answer(&mut asked, &[("Land these ", "e"), ("Land ", "q")]);
        asked.end();
        store.call(["abort"]).expect(0);

        let mut asked = OnTerminal::start(store, &run);
        answer(&mut asked, &[("[K]eep open: ", "l")]);
        asked.wait_for("M .git/index");
        answer(&mut asked, &[("[K]eep open: ", "p other")]);
        asked.wait_for("1 change; transaction");
        answer(&mut asked, &[("[K]eep open: ", "k")]);
        asked.end();
        let mut asked = OnTerminal::start(store, "commit --patch -- .git");
        answer(&mut asked, &[("Land these ", "y")]);
        asked.end();
        let landed = "test \"$(git log --format=%s | head -n 1)\" = second
                      test $(cat page) = old && test $(cat other) = new";
        store.run(landed).expect(0);
        store.call(["commit"]).expect(0);
    });
}
