//! Changes that a view can show but the base refuses, because the file system below has
//! limits and obstacles of its own. Such a commit must be refused as a whole, before any
//! part of it is final, and the store must keep working.

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Outcome, User, shell, skip, tools_present};

const BASE: &str = r#"
mkdir -p dir/sub && echo old | tee file dir/file > /dev/null && head -c 200000 /dev/zero > large
touch -d '2001-02-03 04:05:06.123456789' file dir/file large dir dir/sub
"#;

/// Names that come and go leave a directory with a new modification time.
const OLD: &str = "touch -d '2001-02-03 04:05:06.123456789' .";

/// Scripts that run outside before the transaction begins, in the transaction, and
/// outside after it. A refusal must name `path`.
struct Case {
    name: &'static str,
    before: &'static str,
    inside: &'static str,
    after: &'static str,
    path: &'static str,
}

fn check(case: &Case, obstacle: &str) {
    let test = format!("unappliable-{}", case.name);
    Fixture::for_each_owner(&test, BASE, |fixture| check_in(fixture, case, obstacle));
}

fn check_in(fixture: &Fixture, case: &Case, obstacle: &str) {
    shell(&fixture.base, &format!("{}\n{OLD}", case.before));
    let untouched = fixture.look();
    let alive = || {
        fixture.store.run(&format!(
            "echo alive >> alive && rm alive && : > proof && rm proof && {OLD}"
        ))
    };

    // Something else changes as well, and must not be committed either.
    let script = format!(
        "echo new > dir/file && echo new > new && mkdir sub && {}",
        case.inside
    );
    let outcome = fixture.store.run(&script);
    let at_once = alive();
    fixture.store.call(["abort", "--all"]);
    fixture.store.call(["service", "stop", "--abort"]);
    let reopened = alive();
    let seen = fixture.look();
    // Undo this before anything can panic, or the cleanup would fail.
    shell(&fixture.base, case.after);

    assert_ne!(outcome.code, 0, "{outcome}");
    for part in [case.path, obstacle] {
        says(&outcome, part);
    }
    assert_equal(case.name, &untouched, &seen, &CompareOptions::untouched());
    at_once.expect(0);
    reopened.expect(0);
    fixture.store.run("echo afterwards > afterwards").expect(0);
}

fn says(outcome: &Outcome, part: &str) {
    assert!(
        outcome.error_text().contains(part),
        "does not say {part:?}\n{outcome}"
    );
}

#[test]
fn refused_commit_to_immutable_or_append_only_files_changes_nothing() {
    const CASES: &[Case] = &[
        Case {
            name: "immutable-overwritten",
            before: "chattr +i file",
            inside: "echo new > file",
            after: "chattr -i file",
            path: "file",
        },
        Case {
            name: "immutable-removed",
            before: "chattr +i file",
            inside: "rm file",
            after: "chattr -i file",
            path: "file",
        },
        Case {
            name: "immutable-renamed",
            before: "chattr +i file",
            inside: "mv file dir/moved",
            after: "chattr -i file",
            path: "file",
        },
        Case {
            name: "immutable-linked",
            before: "chattr +i file",
            inside: "ln file dir/linked",
            after: "chattr -i file",
            path: "file",
        },
        Case {
            name: "immutable-mode",
            before: "chattr +i file",
            inside: "chmod 600 file",
            after: "chattr -i file",
            path: "file",
        },
        Case {
            name: "immutable-directory",
            before: "chattr +i dir/sub",
            inside: "echo new > dir/sub/new",
            after: "chattr -i dir/sub",
            path: "dir/sub",
        },
        Case {
            name: "append-only-overwritten",
            before: "chattr +a large",
            inside: "echo x | dd of=large conv=notrunc status=none",
            after: "chattr -a large",
            path: "large",
        },
        Case {
            name: "append-only-directory",
            before: "chattr +a dir",
            inside: "rm dir/file",
            after: "chattr -a dir",
            path: "dir",
        },
    ];
    if tools_present("unappliable", &["chattr"]) {
        CASES
            .iter()
            .for_each(|case| check(case, "immutable or append-only"));
    }
}

/// No check can see this obstacle. The commit is in the log, but cannot be applied yet.
#[test]
fn stalled_commit_finishes_once_the_obstacle_is_gone() {
    if !tools_present("unappliable-stalled", &["chattr"]) {
        return;
    }
    let fixture = Fixture::new("unappliable-stalled", BASE);
    let store = &fixture.store;
    let limbo = fixture.base.join(".atomdir/limbo");
    let stranger = User::stranger(fixture.scratch.path());
    store.call(["config", "allow", stranger.name]).expect(0);
    let older = store.begin();
    shell(&limbo, "chattr +i .");
    let committed = store.run("rm -r dir && echo new > new");
    let refused = store.run("true");
    let status = store.call(["service", "status"]);
    // A user who may use the store may have no right to see the path.
    let to_others =
        [&["begin"] as &[&str], &["service", "status"]].map(|verb| store.call_as(&stranger, verb));
    let read = shell(&older.path, "cat dir/file");
    shell(&limbo, "chattr -i .");
    let (committed, refused) = (committed.expect(0), refused.expect(75));
    for outcome in [&committed, &refused] {
        let text = outcome.error_text();
        assert!(
            text.contains("'dir'") && text.contains("durable"),
            "{outcome}"
        );
    }
    assert!(status.text().contains("'dir' is in its way"), "{status}");
    for outcome in to_others {
        let text = outcome.text() + &outcome.error_text();
        assert!(
            !text.contains("'dir'") && text.contains("something is in its way"),
            "{outcome}"
        );
    }
    assert_eq!(read.text(), "old\n");
    assert_eq!(shell(&older.path, "cat dir/file").text(), "old\n");
    store.run("echo afterwards > afterwards").expect(0);
    assert!(!fixture.base.join("dir").exists() && fixture.base.join("new").exists());
    store.call(["abort", "--all"]);
    store.assert_at_rest();
}

/// If the service ends meanwhile, the commit stays in the log.
#[test]
fn a_stalled_commit_outlives_the_service_and_recovery_finishes_it() {
    if !tools_present("unappliable-logged", &["chattr"]) {
        return;
    }
    let fixture = Fixture::new("unappliable-logged", BASE);
    let limbo = fixture.base.join(".atomdir/limbo");
    shell(&limbo, "chattr +i .");
    let committed = fixture.store.run("rm -r dir && echo new > new");
    fixture.store.call(["service", "stop", "--abort"]);
    let stuck = fixture.store.call(["recover"]);
    shell(&limbo, "chattr -i .");
    committed.expect(0);
    let stuck = stuck.expect(74);
    let says = "take away the cause, then run `atomdir recover`";
    assert!(stuck.error_text().contains(says), "{stuck}");
    fixture.store.call(["recover"]).expect(0);
    assert!(!fixture.base.join("dir").exists() && fixture.base.join("new").exists());
    fixture.store.assert_at_rest();
}

/// ext4 has one block for all attributes of a file, usually of 4 KiB.
#[test]
fn refused_commit_of_too_many_attributes_changes_nothing() {
    if !tools_present("unappliable-xattrs", &["setfattr"]) {
        return;
    }
    let many =
        "for i in 1 2 3 4 5 6; do setfattr -n user.a$i -v $(head -c 3000 /dev/zero | tr '\\0' x) ";
    let (old, new) = (format!("{many} file; done"), format!("{many} new; done"));
    for (name, inside) in [("xattrs-old", old), ("xattrs-new", new)] {
        let inside: &'static str = inside.leak();
        let path = if name == "xattrs-old" { "file" } else { "new" };
        check(
            &Case {
                name,
                before: "",
                inside,
                after: "",
                path,
            },
            "",
        );
    }
}

/// The kernel lets nobody write, rename or remove a swap file in use.
#[test]
fn refused_commit_of_a_swap_file_in_use_changes_nothing() {
    const BEFORE: &str = "dd if=/dev/zero of=swap bs=64k count=32 status=none && chmod 600 swap &&
        mkswap -q swap && swapon swap";
    const CASES: [(&str, &str); 5] = [
        ("swap-removed", "rm swap"),
        ("swap-renamed", "mv swap dir/swap"),
        ("swap-replaced", "echo x > x && mv x swap"),
        ("swap-rewritten", "echo x > swap"),
        (
            "swap-overwritten",
            "echo x | dd of=swap conv=notrunc status=none",
        ),
    ];
    if !tools_present("unappliable-swap", &["mkswap", "swapon"]) {
        return;
    }
    let trial = Fixture::new("swap-trial", "");
    let probe = format!("{{ {BEFORE}; }} > /dev/null 2>&1 && swapoff swap && touch works || true");
    shell(&trial.base, &probe);
    if !trial.base.join("works").exists() {
        skip(
            "unappliable-swap",
            "the machine lets nobody use a swap file",
        );
        return;
    }
    for (name, inside) in CASES {
        check(
            &Case {
                name,
                before: BEFORE,
                inside,
                after: "swapoff swap",
                path: "swap",
            },
            "",
        );
    }
}

/// A name on which something is mounted can be neither removed nor renamed.
#[test]
fn refused_commit_of_names_with_mounts_changes_nothing() {
    const CASES: &[Case] = &[
        Case {
            name: "mount-removed",
            before: "mount --bind /etc/hostname file",
            inside: "rm file",
            after: "umount file",
            path: "file",
        },
        Case {
            name: "mount-replaced",
            before: "mount --bind /etc/hostname file",
            inside: "mv new file",
            after: "umount file",
            path: "file",
        },
        Case {
            name: "mount-in-a-directory-removed",
            before: "mount -t tmpfs none dir/sub",
            inside: "rm -rf dir",
            after: "umount dir/sub",
            path: "dir/sub",
        },
    ];
    CASES.iter().for_each(|case| check(case, ""));
}
