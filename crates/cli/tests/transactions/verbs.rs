use crate::store::Store;

#[test]
fn init_again_is_harmless() {
    let store = Store::new("init");
    let json = store.json(&["init"]);
    assert_eq!(json["created"], false);
    assert_eq!(json["store"], store.path.to_str().unwrap());
}

#[test]
fn a_transaction_is_begun_entered_shown_and_committed() {
    let store = Store::new("verbs");
    let (id, view) = store.begin();
    assert_eq!(std::fs::read_to_string(view.join("file")).unwrap(), "old\n");
    store.check(&[
        "exec",
        &id,
        "--",
        "sh",
        "-c",
        "echo new > file; mv file moved",
    ]);
    let outcome = store.call(&["exec", &id, "--", "sh", "-c", "cat moved; exit 5"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(5), "new\n"));
    let status = store.check(&["status"]);
    assert!(
        status.starts_with(&format!("transaction {id}\n")),
        "{status}"
    );
    let json = store.json(&["status", &id]);
    assert_eq!(json["view"], view.to_str().unwrap());
    assert_eq!(json["isolation"], "snapshot");
    assert_eq!(json["detached"], true);
    assert_eq!(
        store.json(&["list"])["transactions"][0]["transaction"].to_string(),
        id
    );
    assert!(store.read("moved").is_none());
    let committed = store.json(&["commit", &id]);
    assert_eq!(
        (&committed["outcome"], &committed["commit"]),
        (&"committed".into(), &1.into())
    );
    assert_eq!(store.read("moved").as_deref(), Some("new\n"));
    assert_eq!(store.call(&["commit", &id]).code, Some(66));
    assert_eq!(store.call(&["status", "4242"]).code, Some(66));
}

#[test]
fn check_counts_the_commits_that_log_lists() {
    let store = Store::new("check");
    store.check(&["run", "-q", "--", "touch", "one"]);
    store.check(&["run", "-q", "--", "touch", "two"]);
    let listed = store.json(&["log"])["commits"].as_array().map(Vec::len);
    assert_eq!(listed, Some(2));
    for is_at_rest in [false, true] {
        if is_at_rest {
            store.check(&["service", "stop"]);
        }
        assert_eq!(store.json(&["check"])["commits_in_history"], 2);
        let text = store.check(&["check"]);
        assert!(text.starts_with("the history has 2 commits; "), "{text}");
    }
}

#[test]
fn several_open_transactions_must_be_named() {
    let store = Store::new("several");
    let (first, _) = store.begin();
    let (second, _) = store.begin();
    let outcome = store.call(&["diff"]);
    assert_eq!(outcome.code, Some(64));
    assert!(
        outcome.error.contains(&format!("{first}, {second}")),
        "{outcome:?}"
    );
    for verb in [&["commit"][..], &["abort"], &["exec", "--", "true"]] {
        let outcome = store.call(verb);
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(
            outcome.error.contains(&format!("\n  {second}  began 2")),
            "{outcome:?}"
        );
    }
    assert!(store.check(&["status"]).contains("LABEL"));
    assert_eq!(store.json(&["abort", "--all"])["aborted"], 2);
    let outcome = store.call(&["diff"]);
    assert_eq!(outcome.code, Some(66));
}

#[test]
fn the_only_open_transaction_need_not_be_named() {
    let store = Store::new("only");
    for verb in [&["commit"][..], &["abort"], &["exec", "--", "true"]] {
        let outcome = store.call(verb);
        assert_eq!(outcome.code, Some(66), "{outcome:?}");
        assert!(
            outcome.error.contains("no transaction of yours"),
            "{outcome:?}"
        );
    }
    store.begin();
    store.check(&["exec", "--", "touch", "made"]);
    assert_eq!(store.json(&["commit"])["commit"], 1);
    assert!(store.read("made").is_some());
    let (_, view) = store.begin();
    std::fs::remove_file(view.join("made")).unwrap();
    store.begin();
    let view = view.to_str().unwrap();
    assert_eq!(store.json(&["-C", view, "commit"])["commit"], 2);
    assert!(store.read("made").is_none());
    assert_eq!(store.json(&["abort"])["aborted"], 1);
}

#[test]
fn abort_without_an_id_refuses_a_transaction_in_use() {
    let store = Store::new("in-use");
    let outcome = store.shell(
        "pipe=../pipe-$$; mkfifo $pipe; $ATOMDIR run -- cat $pipe & exec 3> $pipe; rm $pipe
         $ATOMDIR abort; echo $?; exec 3>&-; wait $!; echo $?",
    );
    assert!(outcome.error.contains("is using it"), "{outcome:?}");
    assert_eq!(outcome.out, "64\n0\n", "{outcome:?}");
}

#[test]
fn commits_are_listed_newest_first_and_shown() {
    let store = Store::new("log");
    store.check(&["run", "-m", "one", "--", "touch", "a"]);
    store.check(&[
        "run",
        "--durability",
        "lazy",
        "--",
        "sh",
        "-c",
        "mv a b; rm file",
    ]);
    store.check(&["sync"]);
    let log = store.json(&["log"]);
    assert_eq!(log["commits"][0]["commit"], 2);
    assert_eq!(log["commits"][0]["label"], "sh -c mv a b; rm file");
    assert_eq!(log["commits"][1]["label"], "one");
    assert_eq!(store.check(&["log", "-n", "1"]).lines().count(), 1);
    let shown = store.check(&["show", "2"]);
    assert!(shown.ends_with("\nR a -> b\nD file\n"), "{shown}");
    assert_eq!(store.json(&["show", "1"])["changes"][0]["change"], "A");
    assert_eq!(store.call(&["show", "77"]).code, Some(66));
    let of_path = |option: &[&'static str]| [&["show", "2"], option, &["--", "b"]].concat();
    let shown = store.check(&of_path(&[]));
    assert!(shown.ends_with("\n\nR a -> b\n"), "{shown}");
    let changes = &store.json(&of_path(&[]))["changes"];
    assert_eq!(changes.as_array().map(Vec::len), Some(1), "{changes}");
    let patch = store.check(&of_path(&["--patch"]));
    let files = patch.lines().filter(|line| line.starts_with("diff "));
    assert_eq!(files.collect::<Vec<_>>(), ["diff --git a/b b/b"]);
    let patch = &store.json(&of_path(&["--patch"]))["changes"];
    assert_eq!(patch[0]["path"], "b", "{patch}");
    assert_eq!(patch.as_array().map(Vec::len), Some(1), "{patch}");
}

#[test]
fn service_starts_on_demand_and_stops_on_request() {
    let store = Store::new("service");
    assert_eq!(store.json(&["service", "stop"])["stopped"], false);
    let status = store.check(&["service", "status"]);
    assert!(status.contains("process       none"), "{status}");
    let started = store.json(&["service", "start"]);
    assert_eq!(started["started"], true);
    let status = store.json(&["service", "status"]);
    assert_eq!(status["process"], started["process"]);
    assert_eq!(status["open_transactions"], 0);
    store.begin();
    assert!(store.check(&["service", "status"]).contains("1 open"));
    assert_eq!(store.call(&["service", "stop"]).code, Some(75));
    let stopped = store.json(&["service", "stop", "--abort"]);
    assert_eq!(stopped["transactions_aborted"], 1);
    let recovered = store.json(&["recover"]);
    assert_eq!(recovered["recovered_now"], true);
    let checked = store.json(&["check"]);
    assert_eq!(checked["problems"], serde_json::json!([]));
}

#[test]
fn a_shell_without_a_terminal_ends_as_run_does() {
    let store = Store::new("shell");
    let outcome = store.shell("echo 'echo new > file' | SHELL=/bin/sh $ATOMDIR shell");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let outcome = store.shell("echo 'rm file; exit 6' | SHELL=/bin/sh $ATOMDIR shell");
    assert_eq!(outcome.code, Some(6), "{outcome:?}");
    assert!(store.read("file").is_some());
    let (id, _) = store.begin();
    store.shell(&format!(
        "echo 'touch x' | SHELL=/bin/sh $ATOMDIR shell {id}"
    ));
    assert_eq!(store.check(&["diff", "--name-status"]), "A x\n");
}

#[test]
fn on_a_terminal_a_shell_asks_at_its_end() {
    let store = Store::new("interactive");
    let outcome = store.shell(
        "{ echo 'rm file'; echo 'false'; echo exit; echo y; } |
         NO_COLOR=1 SHELL=/bin/sh script -qec \"$ATOMDIR shell\" /dev/null",
    );
    assert!(outcome.out.contains("(transaction "), "{outcome:?}");
    assert!(
        outcome.out.contains("Commit 1 change of transaction "),
        "{outcome:?}"
    );
    assert!(store.read("file").is_none());
}

#[test]
fn unlock_without_a_path_ends_all_locks() {
    let store = Store::new("unlock");
    let (id, _view) = store.begin();
    store.check(&["lock", &id, "file"]);
    store.check(&["lock", &id, "other"]);
    assert_eq!(store.check(&["unlock"]), "ended 2 locks\n");
    store.check(&["lock", &id, "file"]);
    assert_eq!(store.check(&["unlock", &id]), "ended 1 lock\n");
    assert_eq!(store.call(&["lock"]).code, Some(64));
}
