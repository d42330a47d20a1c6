//! On which file systems a store can be: what `init` checks, and what the service checks
//! again.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use atomdir_testing::exit_code::{CANNOT_CREATE, CONFIGURATION};
use atomdir_testing::{
    Outcome, Owner, Scratch, Store, User, binary, capture_output, for_each_owner, shell, skip,
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
