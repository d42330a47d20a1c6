//! Renames that overlayfs refuses, and the helper process that performs them in native views.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt;

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::{
    Fixture, Scenario, User, binary, for_each_owner, shell, tools_present, users_can_mount,
    wait_until,
};

/// Overlayfs does not remember a path that is longer than 256 bytes.
fn long() -> String {
    let level = "n".repeat(90);
    format!("{level}/{level}/{level}")
}

#[test]
fn long_paths_are_renamed_in_roots_native_view() {
    let test = "long_paths_are_renamed_in_roots_native_view";
    if !tools_present(test, &["perl"]) {
        return;
    }
    let long = long();
    let prepare = format!(
        "mkdir -p {long}/dir/in {long}/gone elsewhere; cd {long}; echo a > file; echo b > dir/in/b
         echo c > dir/c; ln dir/c file2; ln -s c dir/link; mkfifo dir/pipe; chmod 640 dir/c
         setfattr -n user.colour -v blue dir 2> /dev/null; chmod 710 dir; touch -d 2001-02-03 file dir/in/b"
    );
    let rename =
        |from: &str, to: &str| format!("perl -e 'rename(\"{from}\", \"{to}\") or die \"$!\"'; ");
    let scripts = [
        rename(&format!("{long}/dir"), "elsewhere/dir")
            + "ls -l elsewhere/dir | grep -v ^total | cut -c 1-12",
        rename(&format!("{long}/file"), "elsewhere/file") + "cat elsewhere/file",
        format!("chmod 600 {long}/file; cd {long}; ")
            + &rename("file", "dir/in/file")
            + &rename("dir", "gone")
            + "echo more >> file2; cat gone/c gone/in/file",
        format!("cd {long}; mv dir/in ..; mv ../in dir/; mv file2 dir/link; rm dir/link"),
    ];
    for (number, script) in scripts.iter().enumerate() {
        Scenario::shell(&format!("{test}-{number}"), script)
            .prepare(&prepare)
            .same_output()
            .without_directory_times()
            .in_views(&["native", "exclusive"])
            .check();
    }
}

/// The helper has root's rights, and a process that has given them up must not use them.
#[test]
fn renames_of_long_paths_need_the_callers_own_rights() {
    let test = "renames_of_long_paths_need_the_callers_own_rights";
    if !tools_present(test, &["perl", "setpriv"]) {
        return;
    }
    let long = long();
    let fixture = Fixture::new(test, &format!("mkdir -p {long}/dir elsewhere; chmod 755 ."));
    if fs::metadata(&fixture.base).expect("there").uid() != 0 {
        eprintln!("skipped: {test} needs root");
        return;
    }
    let rename = format!("perl -e 'rename(\"{long}/dir\", \"elsewhere/dir\") or die \"$!\"'");
    for drop in [
        "--reuid 65534 --clear-groups",
        "--reuid 65534 --regid 65534 --clear-groups",
        "--bounding-set -dac_override,-fowner --inh-caps -all",
    ] {
        let script = format!("chmod 555 elsewhere; setpriv {drop} {rename}");
        let refused = fixture.store.run_with(&["--view", "native"], &script);
        assert_ne!(refused.code, 0, "{drop}: {refused}");
        assert!(!fixture.base.join("elsewhere/dir").exists(), "{drop}");
    }
    fixture
        .store
        .run_with(&["--view", "native"], &rename)
        .expect(0);
    assert!(fixture.base.join("elsewhere/dir").exists());
    fixture.store.assert_at_rest();
}

#[test]
fn a_rename_that_fails_half_way_leaves_everything_as_it_was() {
    let test = "a_rename_that_fails_half_way_leaves_everything_as_it_was";
    if !users_can_mount(test) || !tools_present(test, &["perl"]) {
        return;
    }
    let prepare = "mkdir -p old/a/deep old/b old/c; for f in 1 2 3; do echo $f > old/$f; echo $f > old/a/deep/$f
        echo $f > old/b/$f; done; ln old/b/2 other; chmod 500 old/a/deep; chmod 555 old/b; ln -s 1 old/link
        find . -exec touch -h -d 2001-02-03 {} +";
    let fixture = Fixture::owned_by(test, User::ordinary, prepare);
    let look = "find . ! -path . -printf '%P %M %s %T@ %l\\n' | grep -v '^out' | sort";
    let script = format!(
        "{look} > /tmp/{test}.1; perl -e 'rename(\"old\", \"new\") and die; print 0 + $!'
         {look} > /tmp/{test}.2; diff /tmp/{test}.1 /tmp/{test}.2; rm /tmp/{test}.[12]"
    );
    let held = fixture.store.run_with(&["--view", "native"], &script);
    let held = held
        .expect(CONFIGURATION)
        .says(&["refused to change", "old"]);
    assert_eq!(held.text(), "18");
    // By default the view is exact.
    fixture.store.call(["abort", "--all"]).expect(0);
    fixture.store.run("mv -T old new; cat new/b/2").expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn a_link_with_a_slash_at_the_end_is_not_renamed() {
    let test = "a_link_with_a_slash_at_the_end_is_not_renamed";
    if !users_can_mount(test) || !tools_present(test, &["perl"]) {
        return;
    }
    let fixture = Fixture::owned_by(test, User::ordinary, "mkdir d; ln -s d link");
    let script = "perl -e 'rename(\"link/\", \"other\") and die; print 0 + $!'";
    let ran = fixture.store.run_with(&["--view", "native"], script);
    assert_eq!(ran.expect(0).text(), "20");
    // Both names of a directory may have one.
    let script = "perl -e 'rename(\"d/\", \"moved/\") or die \"$!\"'; test -d moved";
    fixture
        .store
        .run_with(&["--view", "native"], script)
        .expect(0);
    fixture.store.assert_at_rest();
}

/// A process that the command leaves behind still has the filter.
#[test]
fn processes_left_behind_can_rename() {
    let test = "processes_left_behind_can_rename";
    if !users_can_mount(test) {
        return;
    }
    for owner in [User::ordinary, User::root] {
        let fixture = Fixture::owned_by(test, owner, "mkdir d; touch d/f");
        // A directory that every user can write.
        shell(fixture.scratch.path(), "mkdir -m 1777 signs");
        let outside = fixture.scratch.join("signs/outside");
        let script = format!(
            "mkdir -p {out}; touch {out}/a; (setsid sh -c 'cd {out}; touch started
             until test -e go; do sleep 0.05; done; mv a b && mkdir e && mv e f && touch done' > /dev/null 2>&1 &)
             until test -e {out}/started; do sleep 0.05; done; mv d e",
            out = outside.display()
        );
        fixture
            .store
            .run_with(&["--view", "native"], &script)
            .expect(0);
        assert!(fixture.base.join("e/f").exists());
        fs::write(outside.join("go"), "").expect("written");
        wait_until("its renames", || outside.join("done").exists());
        assert!(outside.join("b").exists() && outside.join("f").exists());
        fs::remove_dir_all(outside).expect("removed");
        fixture.store.assert_at_rest();
    }
}

/// A process can have one helper only. In an ordinary user's view no service can start, since
/// `fusermount3` gets no rights there. And as nobody stands for all unknown users there, the command
/// must trust the store.
#[test]
fn a_run_of_another_store_within_a_native_view_is_exact() {
    let test = "a_run_of_another_store_within_a_native_view_is_exact";
    for_each_owner(test, |owner| {
        let outer = Fixture::owned_by(&format!("{test}-outer"), owner, "mkdir d");
        let inner = Fixture::owned_by(&format!("{test}-inner"), owner, "mkdir d; ls > d/f");
        inner.store.call(["service", "start"]).expect(0);
        let script = format!(
            "mv d e; {} -C {} --trust run -v -- sh -c 'mv d e; stat -fc %T .'",
            binary().display(),
            inner.base.display()
        );
        let outcome = outer
            .store
            .run_with(&["--view", "native"], &script)
            .expect(0);
        assert_eq!(outcome.text(), "fuseblk\n");
        assert!(inner.base.join("e/f").exists() && outer.base.join("e").exists());
        inner.store.assert_at_rest();
        outer.store.assert_at_rest();
    });
}

/// Also in a sealed command, and in one that joins.
#[test]
fn sealed_commands_can_rename_directories() {
    let test = "sealed_commands_can_rename_directories";
    if !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by(test, User::ordinary, "mkdir -p d/e; echo a > d/e/f");
    let options = ["--view", "native", "--sealed"];
    let script = "perl -e 'rename(\"d\", \"x\") or die \"$!\"'; cat x/e/f";
    let outcome = fixture.store.run_with(&options, script).expect(0);
    assert_eq!(outcome.text(), "a\n");
    assert!(fixture.base.join("x/e/f").exists());
    fixture.store.assert_at_rest();
}
