//! With `mount --sync`, what a call through the guard has changed is flushed before it returns.

use super::*;

/// How often something was flushed; `None`: calls are not flushed.
fn flushes(guarded: &Guarded) -> Option<u64> {
    let status = guarded.fixture.store.call(["--json", "service", "status"]);
    let status = status.expect(0).text();
    let number = |key: &str| {
        let (_, after) = status.split_once(key).expect("it is there");
        let end = after.find(|c: char| !c.is_ascii_digit());
        after[..end.unwrap_or(after.len())]
            .parse()
            .expect("a number")
    };
    assert!(status.contains("\"guard\":{"), "{status}");
    status
        .contains("\"sync\":true")
        .then(|| number("\"flushes\":"))
}

#[test]
fn each_changing_call_is_flushed_under_a_guard_with_sync() {
    let test = "each_changing_call_is_flushed_under_a_guard_with_sync";
    let Some(guarded) = Guarded::new(test, "mkdir w v; echo old > w/f; ln -s f w/s") else {
        return;
    };
    let store = &guarded.fixture.store;
    assert_eq!(flushes(&guarded), None);
    fs::write(guarded.base().join("w/unflushed"), "x").expect("written");
    store.call(["mount", "--sync"]).expect(0);
    assert_eq!(flushes(&guarded), Some(0));
    // Each with how many objects and directories it changes.
    let calls = [
        ("read", "cat w/f > /dev/null; ls w > /dev/null", 0),
        ("make", "mknod w/p p", 2),
        ("make a directory", "mkdir w/d", 2),
        ("write", "printf new 1<> w/f", 1),
        ("append", "printf more >> w/f", 1),
        ("cut off", "truncate -s 2 w/f", 1),
        ("allocate", "fallocate -l 9 w/f", 1),
        ("change attributes", "chmod 600 w/f", 1),
        ("of a link", "chown -h 1 w/s", 1),
        ("set an attribute", "setfattr -n user.a -v 1 w/f", 1),
        ("remove an attribute", "setfattr -x user.a w/f", 1),
        ("link", "ln w/f w/g", 2),
        ("rename", "mv w/g w/h", 1),
        ("move", "mv w/h v/h", 2),
        ("unlink", "rm v/h", 1),
        ("remove a directory", "rmdir w/d", 1),
    ];
    let mut before = 0;
    for (what, script, changed) in calls {
        shell(guarded.base(), script);
        let now = flushes(&guarded).expect("calls are flushed");
        assert_eq!(now - before, changed, "{what}");
        before = now;
    }
    // It is said anew each time.
    store.call(["mount"]).expect(0);
    assert_eq!(flushes(&guarded), None);
    store.call(["mount", "--sync"]).expect(0);
    store.call(["umount"]).expect(0);
    store.call(["mount"]).expect(0);
    assert_eq!(flushes(&guarded), None);
}
