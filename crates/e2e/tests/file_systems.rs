//! On which file systems a store can be: what `init` checks, and what the service checks
//! again.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use atomdir_testing::exit_code::{CANNOT_CREATE, CONFIGURATION};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Outcome, Owner, Scratch, Store, User, binary, capture_output, for_each_owner, look, shell,
    skip, tools_present,
};

const OVERLAYS: [&str; 3] = ["", ",xino=on,index=on", ",redirect_dir=on,metacopy=on"];

struct Overlay {
    scratch: Scratch,
    merged: PathBuf,
}

impl Overlay {
    /// Returns `None` if the test has been skipped.
    fn mount(test: &str, options: &str, owner: Owner) -> Option<(Overlay, User)> {
        let scratch = Scratch::new("overlay");
        let user = owner(scratch.path());
        let prepare = format!(
            "mkdir lower upper work merged lower/d && echo 1 > lower/file && ln lower/file lower/d/
             chown -R {}:{} lower upper",
            user.uid, user.gid
        );
        shell(scratch.path(), &prepare);
        let mount = format!(
            "mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work{options} merged \
             || touch refused"
        );
        shell(scratch.path(), &mount);
        if scratch.join("refused").exists() {
            skip(test, &format!("no overlay can be mounted here ({options})"));
            return None;
        }
        let merged = scratch.join("merged");
        Some((Overlay { scratch, merged }, user))
    }

    /// With something of everything in the lower layer, in the directory `project`.
    fn with_project(test: &str, options: &str, owner: Owner) -> Option<(Overlay, User, PathBuf)> {
        if !tools_present(test, &["setfattr", "setfacl"]) {
            return None;
        }
        let (overlay, user) = Overlay::mount(test, options, owner)?;
        overlay.unmount();
        let lower = overlay.scratch.join("lower");
        shell(&lower, &format!("mkdir project; cd project\n{PROJECT}"));
        shell(
            &lower,
            &format!("chown -hR {}:{} project", user.uid, user.gid),
        );
        overlay.mount_again(options);
        let project = overlay.merged.join("project");
        Some((overlay, user, project))
    }

    fn unmount(&self) {
        shell(self.scratch.path(), "umount merged");
    }

    /// As a container that starts again does.
    fn mount_again(&self, options: &str) {
        // With an index the kernel wants the layers for itself, and mount namespaces that other tests
        // have made meanwhile may have copies of the old mount for a while.
        let mount = format!(
            "for try in $(seq 600); do
                mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work{options} merged &&
                    exit 0
                sleep 0.1
            done; exit 1"
        );
        shell(self.scratch.path(), &mount);
    }
}

const PROJECT: &str = "mkdir -p src/deep/er empty src/closed; seq 2000 > src/numbers; echo one > one
    ln one src/one-again; ln -s one link; ln -s nowhere dangling; mkfifo fifo
    ln -s twice src/link; ln src/link src/deep/link
    truncate -s 1M sparse; printf x | dd of=sparse bs=1 seek=500000 conv=notrunc status=none
    setfattr -n user.colour -v blue src; setfacl -m u:games:r one; setfacl -d -m u:games:rx src/deep
    chmod 600 src/numbers; chmod 1750 src; touch src/closed/a; chmod 555 src/closed; echo a > 'odd\nname'
    find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +";

fn init_copy(user: &User, directory: &Path) -> Outcome {
    atomdir(user, &["init".as_ref(), "--copy".as_ref(), directory])
}

fn atomdir(user: &User, arguments: &[&Path]) -> Outcome {
    let mut command = std::process::Command::new(binary());
    user.dress(&mut command);
    capture_output(command.current_dir("/").args(arguments))
}

#[test]
fn init_on_an_overlay_is_refused() {
    let test = "init_on_an_overlay_is_refused";
    for_each_owner(test, |owner| {
        for options in OVERLAYS {
            let Some((overlay, user)) = Overlay::mount(test, options, owner) else {
                return;
            };
            let merged = &overlay.merged;
            let control = overlay.scratch.join("merged/d/control");
            let below = overlay.scratch.join("merged/store");
            shell(merged, &format!("mkdir store; chown {} store", user.uid));
            for arguments in [
                &["init".as_ref(), merged.as_path()] as &[&Path],
                &["init".as_ref(), &below, "--control".as_ref(), &control],
            ] {
                let refused = atomdir(&user, arguments).expect(CANNOT_CREATE);
                refused.says(&["overlay", "volume"]);
            }
            assert!(!merged.join(".atomdir").exists());
            assert_eq!(fs::read_dir(&below).expect("it is listed").count(), 0);
        }
    });
}

/// If such a store were opened, a commit could be logged that cannot be applied.
#[test]
fn store_seen_through_an_overlay_is_refused() {
    let test = "store_seen_through_an_overlay_is_refused";
    for_each_owner(test, |owner| {
        let Some((overlay, user)) = Overlay::mount(test, "", owner) else {
            return;
        };
        shell(overlay.scratch.path(), "umount merged");
        drop(Store::init(&overlay.scratch.join("lower"), &user));
        let mount = "mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work merged";
        shell(overlay.scratch.path(), mount);
        let store = Store::existing(&overlay.merged, &user);
        // Its objects have other identities there, as in a copy, and it cannot be adopted.
        store
            .run("mv d e")
            .expect(CONFIGURATION)
            .says(&["is a copy of the store"]);
        store
            .call(["init", "--adopt"])
            .expect(CANNOT_CREATE)
            .says(&["overlay"]);
        assert!(overlay.merged.join("d").exists());
    });
}

/// The directory itself is no copy, and its time of modification changes.
fn all_in_it() -> CompareOptions {
    CompareOptions {
        root: false,
        holes: true,
        ..CompareOptions::copied()
    }
}

#[test]
fn copies_on_an_overlay_are_like_their_originals_and_stay_a_store() {
    let test = "copies_on_an_overlay_are_like_their_originals_and_stay_a_store";
    for_each_owner(test, |owner| {
        for options in ["", ",xino=on,index=on", ",redirect_dir=nofollow"] {
            let Some((overlay, user, project)) = Overlay::with_project(test, options, owner) else {
                return;
            };
            let before = look(&project);
            init_copy(&user, &project).expect(0);
            assert_equal(options, &before, &look(&project), &all_in_it());
            let store = Store::existing(&project, &user);
            store.call(["init", "--copy"]).expect(0);
            store.call(["init"]).expect(0);

            let script = "echo 2 >> one; mv src moved; mkdir src; mv moved/deep src; rm -r empty
                ln one src/third; echo 3 >> moved/numbers";
            store.run(script).expect(0);
            assert_eq!(shell(&project, "cat src/third").text(), "one\n2\n");
            assert_eq!(shell(&project, "cat moved/one-again").text(), "one\n2\n");
            let native = store.run_with(&["--view", "native"], "true");
            native.expect(CONFIGURATION).says(&["--view exact"]);
            assert!(store.kill_service());
            store.call(["undo"]).expect(0);
            store.call(["undo"]).expect(0);
            let after = look(&project);
            store.call(["service", "stop"]).expect(0);

            overlay.unmount();
            shell("/".as_ref(), "sync; echo 2 > /proc/sys/vm/drop_caches");
            overlay.mount_again(options);
            assert_equal(
                options,
                &after,
                &look(&project),
                &CompareOptions::untouched(),
            );
            store.run("mv moved src/moved; echo 4 >> one").expect(0);
            store.call(["check"]).expect(0);
            store.call(["undo"]).expect(0);
            store.assert_at_rest();
            store.call(["service", "stop"]).expect(0);
        }
    });
}

/// What a killed service has left half done is found again by the identities of its objects.
#[test]
fn killed_services_lose_no_commit_on_an_overlay() {
    let test = "killed_services_lose_no_commit_on_an_overlay";
    for_each_owner(test, |owner| {
        let Some((_overlay, user, project)) = Overlay::with_project(test, "", owner) else {
            return;
        };
        init_copy(&user, &project).expect(0);
        let store = Store::existing(&project, &user);
        store.run("mkdir a; echo 0 > a/n; echo 0 > n").expect(0);
        let mut committed = 0;
        for round in 1..=12 {
            let script = "n=$(($(cat n) + 1)); echo $n > n; mv a b; mkdir a; mv b/n a; rmdir b
                echo $n > a/n; rm -f src/mark-*; echo $n > src/mark-$n";
            std::thread::scope(|scope| {
                let running = scope.spawn(|| store.run(script).code == 0);
                // At another moment of the transaction each time.
                std::thread::sleep(std::time::Duration::from_millis(7 * round));
                store.kill_service();
                committed += u64::from(running.join().expect("it ends"));
            });
            store.call(["recover"]).expect(0);
            let found = shell(
                &project,
                "cat n; cat a/n; cat src/mark-* || cat n; ls -d b || :",
            );
            let found = found.text();
            let numbers: Vec<u64> = found.lines().map(|one| one.parse().expect(one)).collect();
            assert_eq!(numbers.len(), 3, "{found}");
            assert!(numbers.iter().all(|one| *one == numbers[0]), "{found}");
            // One whose answer the kill has cut off may be in the base.
            assert!(
                (committed..=round).contains(&numbers[0]),
                "{committed}, {found}"
            );
            committed = numbers[0];
        }
        store.call(["check"]).expect(0);
    });
}

#[test]
fn interrupted_copies_go_on_and_changed_originals_stay() {
    let test = "interrupted_copies_go_on_and_changed_originals_stay";
    for_each_owner(test, |owner| {
        let Some((overlay, user, project)) = Overlay::with_project(test, "", owner) else {
            return;
        };
        let before = look(&project);
        // It was killed while it copied.
        let half = format!(
            "mkdir .atomdir-copy; cp -a src .atomdir-copy; echo half > .atomdir-copy/src/numbers
             chown -hR {}:{} .atomdir-copy",
            user.uid, user.gid
        );
        shell(&project, &half);
        for milliseconds in 1..12 {
            let program = binary();
            let kill = format!(
                "timeout -s KILL 0.0{milliseconds:02} {} init --copy project || :",
                program.display()
            );
            let mut command = std::process::Command::new("sh");
            user.dress(&mut command);
            let command = command.current_dir(&overlay.merged).args(["-c", &kill]);
            capture_output(command);
        }
        // It was killed while it put the copies into their places.
        if !project.join(".atomdir").exists() {
            shell(&project, "rm -rf .atomdir-copy");
            if !project.join(".atomdir-copied").exists() {
                let copied = "mkdir ../all; cp -a . ../all; mv ../all .atomdir-copied";
                shell(&project, copied);
            }
            // The original of a copy that is still in `.atomdir-copied` may be missing. A copy that
            // has its place is the only one there is.
            let waits = |name: &str| project.join(".atomdir-copied").join(name).exists();
            for name in ["src/numbers", "fifo"] {
                if waits(name) {
                    shell(&project, &format!("rm -f {name}"));
                }
            }
            if waits("one") && project.join("one").exists() {
                shell(&project, "echo changed >> one");
                let refused = init_copy(&user, &project).expect(CANNOT_CREATE);
                refused.says(&["'one' was changed"]);
                let text = fs::read_to_string(project.join("one")).expect("it is there");
                assert_eq!(text, "one\nchanged\n");
                let again = "echo one > one; touch -d '2001-02-03 04:05:06.123456789' one";
                shell(&project, again);
            }
        }
        init_copy(&user, &project).expect(0);
        assert_equal(test, &before, &look(&project), &all_in_it());
        let left = shell(&project, "ls -A | grep atomdir").text();
        assert_eq!(left, ".atomdir\n");
        Store::existing(&project, &user)
            .run("mv src gone")
            .expect(0);
    });
}

#[test]
fn a_copy_that_would_not_hold_is_refused_and_changes_nothing() {
    let test = "a_copy_that_would_not_hold_is_refused_and_changes_nothing";
    for_each_owner(test, |owner| {
        let Some((overlay, user, project)) = Overlay::with_project(test, "", owner) else {
            return;
        };
        let before = look(&project);
        let refused = |words: &[&str]| {
            init_copy(&user, &project).expect(CANNOT_CREATE).says(words);
            assert_equal(test, &before, &look(&project), &CompareOptions::untouched());
            assert_eq!(
                shell(&project, "ls -A | grep -c atomdir || :").text(),
                "0\n"
            );
        };
        let mut sleeper = std::process::Command::new("sleep");
        user.dress(&mut sleeper);
        let sleeper = sleeper.arg("1000").current_dir(project.join("empty"));
        let mut sleeper = sleeper.spawn().expect("started");
        refused(&["(sleep) uses", "project/empty"]);
        sleeper.kill().expect("killed");
        sleeper.wait().expect("ended");

        shell(&project, "mount -t tmpfs none empty");
        let mounted = init_copy(&user, &project).expect(CANNOT_CREATE);
        mounted.says(&["file systems are mounted in it"]);
        shell(&project, "umount empty");
        if !user.is_root() {
            shell(&project, "chmod 555 empty");
            let refused = init_copy(&user, &project).expect(CANNOT_CREATE);
            refused.says(&["no permission to write in 'empty'"]);
            shell(&project, "chmod 755 empty");
            shell(
                &overlay.scratch.join("lower"),
                "chown -h 0:0 project/src/deep/link",
            );
            overlay.unmount();
            overlay.mount_again("");
            init_copy(&user, &project)
                .expect(CANNOT_CREATE)
                .says(&["src/deep/link"]);
            assert_eq!(
                shell(&project, "ls -A | grep -c atomdir || :").text(),
                "0\n"
            );
        }
        let plain = overlay.scratch.join("upper");
        init_copy(&user, &plain)
            .expect(CANNOT_CREATE)
            .says(&["it is on no overlay"]);
        overlay.unmount();
        overlay.mount_again(",redirect_dir=on");
        init_copy(&user, &project)
            .expect(CANNOT_CREATE)
            .says(&["redirect_dir=on"]);
        overlay.unmount();
        let own = format!(
            "mount -t tmpfs none work; mkdir work/u work/w; chown {} work/u",
            user.uid
        );
        shell(overlay.scratch.path(), &own);
        let mount = "mount -t overlay none -o lowerdir=lower,upperdir=work/u,workdir=work/w,xino=off merged";
        shell(overlay.scratch.path(), mount);
        init_copy(&user, &project)
            .expect(CANNOT_CREATE)
            .says(&["several file systems"]);
        overlay.unmount();
        let small = format!(
            "umount work; mount -t tmpfs -o size=256k none work; cp -a lower work/l; mkdir work/u work/w
             chown {} work/u; head -c 40k /dev/zero > work/l/project/more; chown {} work/l/project/more",
            user.uid, user.uid
        );
        shell(overlay.scratch.path(), &small);
        shell(
            overlay.scratch.path(),
            "head -c 1M /dev/zero > work/full || :",
        );
        let mount =
            "mount -t overlay none -o lowerdir=work/l,upperdir=work/u,workdir=work/w merged";
        shell(overlay.scratch.path(), mount);
        init_copy(&user, &project)
            .expect(CANNOT_CREATE)
            .says(&["No space left"]);
        assert_eq!(
            shell(&project, "ls -A | grep -c atomdir || :").text(),
            "0\n"
        );
        overlay.unmount();
        shell(overlay.scratch.path(), "umount work");
    });
}

/// As in a container that was made from the layers of another one.
#[test]
fn a_store_of_copies_that_became_a_lower_layer_is_refused() {
    let test = "a_store_of_copies_that_became_a_lower_layer_is_refused";
    for_each_owner(test, |owner| {
        let Some((overlay, user, project)) = Overlay::with_project(test, "", owner) else {
            return;
        };
        init_copy(&user, &project).expect(0);
        let store = Store::existing(&project, &user);
        store.run("echo 2 >> one").expect(0);
        store.call(["service", "stop"]).expect(0);
        overlay.unmount();
        let mount = "mkdir upper-2 work-2; chown --reference=upper upper-2
            mount -t overlay none -o lowerdir=upper:lower,upperdir=upper-2,workdir=work-2 merged";
        shell(overlay.scratch.path(), mount);
        for _ in 0..2 {
            let refused = store.run("mv src gone");
            assert_ne!(refused.code, 0);
            refused.says(&["is a copy of"]);
        }
        assert_eq!(
            shell(&project, "cat one; ls -d src").text(),
            "one\n2\nsrc\n"
        );
        overlay.unmount();
        let plain = overlay.scratch.join("upper/plain");
        shell(
            overlay.scratch.path(),
            &format!("mkdir upper/plain; chown {} upper/plain", user.uid),
        );
        let store = Store::init(&plain, &user);
        store.run("echo 1 > file").expect(0);
        store.call(["service", "stop"]).expect(0);
        overlay.mount_again("");
        let store = Store::existing(&overlay.merged.join("plain"), &user);
        let refused = store.run("echo 2 > file");
        assert_ne!(refused.code, 0);
        refused.says(&["it is an overlay"]);
    });
}

/// This is why overlays are refused. If it fails on some kernel, stores on overlays may be
/// possible there.
#[test]
fn overlay_files_change_identity() {
    let test = "overlay_files_change_identity";
    for options in OVERLAYS {
        let Some((overlay, _)) = Overlay::mount(test, options, User::root) else {
            return;
        };
        let birth = || shell(&overlay.merged, "stat -c %W.%w file").text();
        let before = birth();
        shell(&overlay.merged, "echo 2 >> file");
        assert_ne!(before, birth(), "{options}");
    }
}

#[test]
fn store_on_tmpfs_survives_a_killed_service() {
    for_each_owner("store_on_tmpfs_survives_a_killed_service", |owner| {
        let scratch = Scratch::new("memory");
        let user = owner(scratch.path());
        let base = scratch.join("base");
        let prepare = format!(
            "mkdir base && mount -t tmpfs none base && mkdir base/d && echo 1 > base/d/file
             chown -R {}:{} base",
            user.uid, user.gid
        );
        shell(scratch.path(), &prepare);
        let store = Store::init(&base, &user);
        store.run("mv d e; ln e/file f; echo 2 >> f").expect(0);
        assert!(store.kill_service());
        store.run("rm f; echo 3 >> e/file").expect(0);
        assert_eq!(shell(&base, "cat e/file").text(), "1\n2\n3\n");
        store.assert_at_rest();
    });
}
