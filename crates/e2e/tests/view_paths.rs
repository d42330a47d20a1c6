//! A path in a view means the view's transaction, and nobody takes a view for a
//! directory that could become a store.
#![cfg(test)]

use atomdir_testing::exit_code::{CANNOT_CREATE, NO_SUCH, NOT_PERMITTED};
use atomdir_testing::{Fixture, Outcome, binary, capture_output};
use std::fs;
use std::path::Path;
use std::process::Command;

/// `atomdir ARGUMENTS` as the store's user, in this directory.
fn at(fixture: &Fixture, directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(binary());
    fixture.store.user().dress(&mut command);
    capture_output(command.current_dir(directory).args(arguments))
}

#[test]
fn a_path_in_a_view_means_its_transaction() {
    let prepare = "mkdir -p dir/sub; echo old > dir/file";
    Fixture::for_each_owner("view-paths", prepare, |fixture| {
        let store = &fixture.store;
        let (other, view) = (store.begin(), store.begin());
        let (top, below) = (view.path.clone(), view.path.join("dir/sub"));
        store.exec(&view, "echo new > dir/file").expect(0);
        for directory in [&top, &below] {
            let diff = at(fixture, directory, &["diff", "--name-status"]).expect(0);
            assert_eq!(diff.text(), "M dir/file\n");
            let status = at(fixture, directory, &["status"]).expect(0).text();
            assert!(
                status.contains(&format!("transaction {}\n", view.id)),
                "{status}"
            );
        }
        let paths = at(fixture, &below, &["diff", "--name-only", "--", "../file"]);
        assert_eq!(paths.expect(0).text(), "dir/file\n");
        // A run there is nested in it, at the same place in the store's own path.
        let run = [
            "run",
            "--view",
            "exact",
            "--",
            "sh",
            "-ec",
            "pwd; echo nested > made",
        ];
        let told = at(fixture, &below, &run).expect(0);
        let place = fixture.base.join("dir/sub");
        assert_eq!(told.text().trim(), place.to_string_lossy());
        store.exec(&view, "test -e dir/sub/made").expect(0);
        assert!(!place.join("made").exists());
        // With a path of the view, from elsewhere.
        let named = at(
            fixture,
            Path::new("/"),
            &["-C", &top.to_string_lossy(), "diff", "--stat"],
        );
        named.expect(0);
        at(fixture, &below, &["commit"]).expect(0);
        assert!(place.join("made").exists());
        store.abort(&other).expect(0);
    });
}

#[test]
fn no_store_is_made_in_a_view() {
    let prepare = "mkdir dir";
    Fixture::for_each_owner("view-init", prepare, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        for directory in [&view.path, &view.path.join("dir")] {
            let told = at(fixture, directory, &["init"]).expect(CANNOT_CREATE);
            assert!(told.error_text().contains("view"), "{told}");
            store
                .exec(&view, "! find . -name .atomdir | grep .")
                .expect(0);
        }
        store.abort(&view).expect(0);
        // Also where nothing in the environment says that it is one.
        let binary = binary();
        let atomdir = format!(
            "env -u ATOMDIR_TX -u ATOMDIR_STORE -u ATOMDIR_SOCKET {}",
            binary.display()
        );
        for kind in ["exact", "native"] {
            let script = format!(
                "set +e; {atomdir} init dir; [ $? = {CANNOT_CREATE} ] || exit 90
                 told=$({atomdir} status 2>&1); [ $? = {NO_SUCH} ] || exit 91
                 case $told in *\"atomdir init\"*) exit 92;; esac
                 [ ! -e dir/.atomdir ]"
            );
            store.run_with(&["--view", kind], &script).expect(0);
        }
    });
}

#[test]
fn a_view_that_a_stranger_may_have_mounted_means_nothing() {
    let fixture = Fixture::new("view-forged", "echo old > file");
    let view = fixture.store.begin();
    let place = view.path.ancestors().nth(2).expect("it is below its mount");
    let fake = fixture.scratch.join("fake");
    let copy = fake.join(place.file_name().expect("it has one"));
    fs::create_dir_all(&copy).expect("made");
    std::os::unix::fs::chown(&fake, Some(5), Some(60)).expect("given away");
    let mut command = Command::new("unshare");
    fixture.store.user().dress(&mut command);
    command.args(["-m", "sh", "-c"]).arg(format!(
        "mount --bind {} {} && cd {}/{} && exec {} diff",
        place.display(),
        copy.display(),
        copy.display(),
        view.id,
        binary().display()
    ));
    let told = capture_output(&mut command).expect(NOT_PERMITTED);
    assert!(told.error_text().contains("user 5"), "{told}");
    fixture.store.abort(&view).expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn nobody_is_advised_to_make_a_store_of_the_root_or_above_mounts() {
    let fixture = Fixture::new("view-advice", "true");
    let view = fixture.store.begin();
    let place = view.path.ancestors().nth(3);
    for directory in [Path::new("/"), place.expect("it has one")] {
        let told = at(&fixture, directory, &["status"]).expect(NO_SUCH);
        assert!(!told.error_text().contains("atomdir init"), "{told}");
    }
    let plain = fixture.scratch.join("plain");
    fs::create_dir(&plain).expect("made");
    let told = at(&fixture, &plain, &["status"]).expect(NO_SUCH);
    assert!(told.error_text().contains("atomdir init"), "{told}");
    let told = at(&fixture, Path::new("/"), &["init"]).expect(CANNOT_CREATE);
    assert!(
        told.error_text().contains("root of the file system"),
        "{told}"
    );
    assert!(!Path::new("/.atomdir").exists());
}

/// A command whose root is the store's own cannot be put into a view by a mount:
/// it would change the store itself.
#[test]
fn a_store_at_the_commands_root_is_refused() {
    let fixture = Fixture::new("view-root", "mkdir proc dev run tmp usr; echo old > file");
    let mut command = Command::new("unshare");
    fixture.store.user().dress(&mut command);
    command.args(["-m", "sh", "-ec"]).arg(
        "cd \"$0\"
         for place in bin sbin lib lib64; do
             if [ -L /$place ]; then cp -a /$place .
             elif [ -d /$place ]; then mkdir $place; mount --rbind /$place $place; fi
         done
         for place in usr proc dev; do mount --rbind /$place $place; done
         mount -t tmpfs none run; mount -t tmpfs none tmp; cp \"$1\" tmp/atomdir
         for options in '' --dry-run; do
             code=0; chroot . /tmp/atomdir run $options -- sh -c 'rm /file' || code=$?
             [ $code = 78 ] || exit 90
         done
         [ -e file ] || exit 91
         id=$(chroot . /tmp/atomdir begin | head -n 1)
         code=0; chroot . /tmp/atomdir exec $id -- rm /file || code=$?
         [ $code = 78 ] || exit 92
         chroot . /tmp/atomdir service stop",
    );
    command.arg(&fixture.base).arg(binary());
    let told = capture_output(&mut command).expect(0);
    told.says(&["root of the file system"]);
    assert!(fixture.base.join("file").exists());
}
