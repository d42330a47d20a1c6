//! A path in a view means the view's transaction, and no verb makes a store in a view.
#![cfg(test)]

use atomdir_testing::exit_code::{CANNOT_CREATE, NO_SUCH, NOT_PERMITTED};
use atomdir_testing::{Fixture, Outcome, binary, capture_output};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `atomdir ARGUMENTS` as the store's user, in this directory.
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
        let absolute = top.join("dir/file").to_string_lossy().into_owned();
        let paths = at(fixture, &below, &["diff", "--name-only", "--", &absolute]);
        assert_eq!(paths.expect(0).text(), "dir/file\n");
        // A run there is nested in that transaction, at the same place in the store's own path.
        let run = [
            "run",
            "--view",
            "exact",
            "--",
            "sh",
            "-ec",
            "pwd; echo nested > made",
        ];
        let outcome = at(fixture, &below, &run).expect(0);
        let place = fixture.base.join("dir/sub");
        assert_eq!(outcome.text().trim(), place.to_string_lossy());
        store.exec(&view, "test -e dir/sub/made").expect(0);
        assert!(!place.join("made").exists());
        // A path of the view also works from elsewhere.
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
fn init_in_a_view_is_refused() {
    let prepare = "mkdir dir";
    Fixture::for_each_owner("view-init", prepare, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        for directory in [&view.path, &view.path.join("dir")] {
            let outcome = at(fixture, directory, &["init"]).expect(CANNOT_CREATE);
            assert!(outcome.error_text().contains("view"), "{outcome}");
            store
                .exec(&view, "! find . -name .atomdir | grep .")
                .expect(0);
        }
        store.abort(&view).expect(0);
        // This holds even if nothing in the environment shows that it is a view.
        let binary = binary();
        let atomdir = format!(
            "env -u ATOMDIR_TX -u ATOMDIR_STORE -u ATOMDIR_SOCKET {}",
            binary.display()
        );
        for kind in ["exact", "native"] {
            let script = format!(
                "set +e; {atomdir} init dir; [ $? = {CANNOT_CREATE} ] || exit 90
                 outcome=$({atomdir} status 2>&1); [ $? = {NO_SUCH} ] || exit 91
                 case $outcome in *\"atomdir init\"*) exit 92;; esac
                 [ ! -e dir/.atomdir ]"
            );
            store.run_with(&["--view", kind], &script).expect(0);
        }
    });
}

#[test]
fn view_mounted_by_a_stranger_is_ignored() {
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
    let outcome = capture_output(&mut command).expect(NOT_PERMITTED);
    assert!(outcome.error_text().contains("user games (5)"), "{outcome}");
    fixture.store.abort(&view).expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn init_is_not_suggested_for_the_root_or_above_mounts() {
    let fixture = Fixture::new("view-advice", "true");
    let view = fixture.store.begin();
    let place = view.path.ancestors().nth(3);
    for directory in [Path::new("/"), place.expect("it has one")] {
        let outcome = at(&fixture, directory, &["status"]).expect(NO_SUCH);
        assert!(!outcome.error_text().contains("atomdir init"), "{outcome}");
    }
    let plain = fixture.scratch.join("plain");
    fs::create_dir(&plain).expect("made");
    let outcome = at(&fixture, &plain, &["status"]).expect(NO_SUCH);
    assert!(outcome.error_text().contains("atomdir init"), "{outcome}");
}

/// A process does not see a mount over its own root, so the command gets another root, with
/// everything else that is mounted there. `run`: whether /run is a file system of its own;
/// if not, the service's mounts are in the store itself. `mount`: whether the root is a
/// mount, as in every container.
fn at_the_root(mount: bool, run: bool, script: &str) {
    let fixture = Fixture::new(
        "view-root",
        "mkdir -p proc dev run tmp usr dir/sub; echo old > file",
    );
    fixture.store.call(["service", "stop", "--abort"]).expect(0);
    let mut command = Command::new("unshare");
    fixture.store.user().dress(&mut command);
    command.args(["-m", "sh", "-ec"]).arg(format!(
        "if [ {mount} = true ]; then mount --bind \"$0\" \"$0\"; fi
         cd \"$0\"
         for place in bin sbin lib lib64; do
             if [ -L /$place ]; then cp -a /$place .
             elif [ -d /$place ]; then mkdir $place; mount --rbind /$place $place; fi
         done
         for place in usr proc dev; do mount --rbind /$place $place; done
         mount -t tmpfs none tmp; cp \"$1\" tmp/atomdir
         if [ {run} = true ]; then mount -t tmpfs none run; fi
         atomdir() {{ chroot . /tmp/atomdir \"$@\"; }}
         expect() {{ code=$1; shift; result=0; \"$@\" || result=$?
                    [ $result = $code ] || {{ echo \"$result, not $code: $*\" >&2; exit 90; }}; }}
         {script}
         atomdir service stop --abort"
    ));
    command.arg(&fixture.base).arg(binary());
    capture_output(&mut command).expect(0);
}

const AT_THE_ROOT: &str = r#"
atomdir init
for view in exact native; do
    expect 3 atomdir run --view $view -- sh -c 'rm /file; [ ! -e /file ] && exit 3'
    [ -e file ]
    mkdir tmp/again; mount --bind . tmp/again
    expect 0 atomdir run --view $view --dry-run -- sh -ec '
        [ ! -e /proc/'$$' ]; [ -e /proc/self ]; [ -z "$(ls -A /run/atomdir)" ]; [ ! -e /.atomdir ]
        echo through > /tmp/again/file; [ "$(cat /file)" = through ]
        [ ! -e /tmp/again/.atomdir ]; (sleep 1000; rm /file) & rm /file'
    umount tmp/again; rmdir tmp/again
    [ "$(cat file)" = old ]
    atomdir run --view $view -- sh -ec '
        cd /dir/sub; echo new > /file; echo new > made; pwd > /dir/where
        echo outside > /tmp/outside; [ -e /proc/self/status ]; echo > /dev/null
        find / -path /run -prune -o -path /proc -prune -o -path /usr -prune -o -path /dev -prune -o -print > /tmp/found; grep -q ^/dir/sub/made /tmp/found
        ! grep -q .atomdir/log /tmp/found'
    [ "$(cat file)" = new ] && [ "$(cat dir/where)" = /dir/sub ] && [ -e dir/sub/made ]
    [ "$(cat tmp/outside)" = outside ]
    rm tmp/outside dir/where; mkfifo tmp/ready tmp/go
    atomdir run --view $view -- sh -ec 'echo $ATOMDIR_TX > /tmp/ready; read line < /tmp/go' &
    read id < tmp/ready
    atomdir exec $id -- sh -ec 'cd /; echo joined > file; [ -e /proc/self ]; [ ! -e /.atomdir/log ]'
    [ "$(cat file)" = new ]; echo > tmp/go; wait $!; [ "$(cat file)" = joined ]
    rm tmp/ready tmp/go; echo old > file
done
id=$(atomdir begin | head -n 1)
atomdir exec $id -- sh -ec 'echo executed > /file'
[ "$(cat file)" = old ]
atomdir commit $id
[ "$(cat file)" = executed ]
atomdir run --view exact -- sh -ec '
    /tmp/atomdir run -- sh -c "echo nested > /nested"
    [ "$(cat /nested)" = nested ]; ! /tmp/atomdir run -- sh -c "rm /nested; false"
    [ -e /nested ]'
[ "$(cat nested)" = nested ]
"#;

#[test]
fn store_at_the_commands_root_shows_its_view() {
    at_the_root(true, true, AT_THE_ROOT);
    at_the_root(true, false, AT_THE_ROOT);
}

#[test]
fn run_is_refused_where_the_root_is_no_mount() {
    let script = "expect 78 atomdir run -- rm /file; expect 78 atomdir run --dry-run -- rm /file
                  [ -e file ]; id=$(atomdir begin | head -n 1)
                  expect 78 atomdir exec $id -- rm /file; [ -e file ]";
    at_the_root(false, true, script);
}
