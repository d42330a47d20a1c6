//! Flags that chattr sets.

#![cfg(test)]

use std::fs;

use atomdir_testing::{Fixture, shell, tools_present};

/// A small file, one with more than half new pages, and a larger one with one new page.
const PREPARE: &str = "echo old > small
    head -c 20000 /dev/zero > half
    head -c 3000000 /dev/zero > large
    chattr +dAS small half large";

/// A commit must change such files in place: a new inode would not have their flags.
#[test]
fn files_keep_their_flags() {
    if !tools_present("files_keep_their_flags", &["chattr", "lsattr"]) {
        return;
    }
    Fixture::for_each_view("inode-flags", PREPARE, |one, view| {
        let flags = || shell(&one.base, "lsattr small half large").expect(0).text();
        let before = flags();
        let have_all = before.lines().all(|line| line.starts_with("--S---dA"));
        assert!(have_all, "{before}");
        let script = "echo new > small
            head -c 15000 /dev/urandom | dd of=half conv=notrunc status=none
            printf x | dd of=large bs=1 seek=5000 conv=notrunc status=none
            cat small half large | sha256sum > sum";
        one.store.run_with(&["--view", view], script).expect(0);
        assert_eq!(flags(), before);
        assert_eq!(fs::read(one.base.join("small")).expect("read"), b"new\n");
        shell(&one.base, "cat small half large | sha256sum | cmp - sum").expect(0);
        one.store.assert_at_rest();
    });
}
