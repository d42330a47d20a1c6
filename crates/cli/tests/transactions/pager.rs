use crate::store::Store;

/// What a command line prints on a terminal, with a pager that begins each line with `paged:`.
fn paged(store: &Store, line: &str) -> String {
    let line = format!("export ATOMDIR_PAGER='sed s/^/paged:/'; {line}");
    store.on_terminal(&line, "\u{0}", "").out
}

fn store_with_commits(name: &str) -> Store {
    let store = Store::new(name);
    for _ in 0..3 {
        store.check(&["run", "--", "sh", "-c", "echo line >> file"]);
    }
    store
}

#[test]
fn long_output_goes_through_the_pager_on_a_terminal() {
    let store = store_with_commits("pager");
    let (id, _) = store.begin();
    store.check(&["exec", &id, "--", "sh", "-c", "echo mine > file"]);
    for verb in [
        "log",
        "show 1",
        "list",
        "status",
        "diff",
        "diff --stat",
        "diff --name-only",
    ] {
        let printed = paged(&store, &format!("$ATOMDIR {verb}"));
        assert!(printed.contains("paged:"), "{verb}: {printed}");
        let unpaged = printed.lines().find(|line| !line.starts_with("paged:"));
        assert_eq!(unpaged, None, "{verb}");
    }
    for line in [
        "$ATOMDIR log --no-pager",
        "$ATOMDIR log --json",
        "$ATOMDIR log | tr x y",
    ] {
        let printed = paged(&store, line);
        assert!(!printed.contains("paged:"), "{line}: {printed}");
    }
    for pager in ["", "cat"] {
        let line = format!("ATOMDIR_PAGER='{pager}' $ATOMDIR log");
        assert!(!paged(&store, &line).contains("paged:"), "{pager}");
    }
}

#[test]
fn quitting_the_pager_early_is_no_failure() {
    let store = Store::new("pager-quit");
    let (id, _) = store.begin();
    store.check(&["exec", &id, "--", "sh", "-c", "seq 1 200000 > numbers"]);
    let line = format!("ATOMDIR_PAGER='head -n 2' $ATOMDIR diff {id}; echo code $?");
    let printed = store.on_terminal(&line, "\u{0}", "").out;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines,
        [
            "diff --git a/numbers b/numbers",
            "new file mode 100644",
            "code 0"
        ]
    );
}

#[test]
fn a_pager_that_cannot_be_started_is_named() {
    let store = store_with_commits("pager-missing");
    let line = "ATOMDIR_PAGER=no-such-pager $ATOMDIR log";
    let printed = store.on_terminal(line, "\u{0}", "").out;
    let warning = "cannot start the pager 'no-such-pager'; `--no-pager` prints without one";
    assert!(printed.contains(warning), "{printed}");
}

#[test]
fn terminals_show_local_time_and_user_names_and_json_utc_and_ids() {
    let store = store_with_commits("local-time");
    let outcome = store.shell("TZ=EST+5 $ATOMDIR log; TZ=EST+5 $ATOMDIR show 1; id -un");
    let name = outcome.out.lines().last().unwrap_or_default().to_owned();
    let first = outcome.out.lines().next().unwrap_or_default();
    assert!(first.contains(&format!(" -0500  {name} ")), "{outcome:?}");
    assert!(
        outcome.out.contains(&format!("user        {name}\n")),
        "{outcome:?}"
    );
    let json = store.json(&["log"]);
    let time = json["commits"][0]["time"].as_str().unwrap_or_default();
    assert!(time.ends_with('Z'), "{json}");
    assert!(json["commits"][0]["user"].is_u64(), "{json}");
}
