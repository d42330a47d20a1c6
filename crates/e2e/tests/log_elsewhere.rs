//! Stores whose log is not in the control directory: kills, a log that is missing, wrong, old or full,
//! moving it and giving it up.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use atomdir_testing::exit_code::{CANNOT_CREATE, CONFLICT};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    LoopDevice, Outcome, Scratch, Store, User, binary, capture_output, for_each_owner, look, shell,
    skip, tools_present,
};

/// A store, and its log in another directory. The fields are dropped in this order.
struct Placed {
    store: Store,
    log: PathBuf,
    scratch: Scratch,
}

impl Placed {
    fn new(test: &str, owner: impl Fn(&Path) -> User) -> Placed {
        let scratch = Scratch::new(test);
        let user = owner(scratch.path());
        for name in ["base", "fast"] {
            let path = scratch.join(name);
            fs::create_dir(&path).expect("made");
            std::os::unix::fs::chown(&path, Some(user.uid), Some(user.gid)).expect("given");
        }
        let log = scratch.join("fast/store.log");
        let store = store_at(&scratch.join("base"), &log, &user).0;
        Placed {
            store,
            log,
            scratch,
        }
    }

    /// Commits what the base has only in part, should the machine stop, and kills the service.
    fn kill_after_commit(&self, text: &str) {
        let script = format!("echo {text} > file; echo {text} > other");
        self.store.run(&script).expect(0);
        assert!(self.store.kill_service(), "there is a service");
    }

    /// Refused, and by a recovery that only says what it would do as well.
    fn expect_refused(&self, reason: &str) {
        self.expect_not_written(reason);
        let dry = self.store.call(["recover", "--dry-run"]);
        assert_ne!(dry.code, 0, "{dry}");
        assert!(dry.text().contains(reason), "{dry}");
    }

    fn expect_not_written(&self, reason: &str) {
        let log = self.log.to_str().expect("UTF-8").to_owned();
        let says = [&log, reason, "nothing was changed", "recover --without-log"];
        let control = self.store.control();
        let before = (look(self.store.path()), names_and_lengths(&control));
        for verb in [&["list"][..], &["run", "--", "touch", "new"], &["recover"]] {
            let outcome = self.store.call(verb);
            assert_ne!(outcome.code, 0, "{outcome}");
            outcome.says(&says);
        }
        let after = (look(self.store.path()), names_and_lengths(&control));
        assert_equal("base", &before.0, &after.0, &CompareOptions::untouched());
        assert_eq!(before.1, after.1, "the control directory is as it was");
    }
}

/// Makes a store with its log at this path.
fn store_at(base: &Path, log: &Path, user: &User) -> (Store, Outcome) {
    let mut init = Command::new(binary());
    user.dress(&mut init);
    init.current_dir("/").arg("init").arg(base);
    let outcome = capture_output(init.arg("--log").arg(log));
    (Store::existing(base, user), outcome)
}

/// Without what services and clients write that only look.
fn names_and_lengths(control: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(control).expect("listed").flatten();
    let each = entries.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, entry.metadata().expect("it is there").len())
    });
    let ours = |name: &str| name.starts_with("service.log") || name == "start.lock";
    let mut all: Vec<_> = each.filter(|(name, _)| !ours(name)).collect();
    all.sort();
    all
}

#[test]
fn commits_survive_kills_and_the_log_moves() {
    let test = "commits_survive_kills_and_the_log_moves";
    for_each_owner(test, |owner| {
        let placed = Placed::new(test, owner);
        let (store, log) = (&placed.store, &placed.log);
        assert!(!store.control().join("log").exists());
        for number in 0..4 {
            placed.kill_after_commit(&number.to_string());
            assert!(fs::metadata(log).expect("the log").len() > 4096);
            let file = store.run("cat file other").expect(0).text();
            assert_eq!(file, format!("{number}\n{number}\n"));
        }
        assert_eq!(fs::metadata(log).expect("the log").mode() & 0o777, 0o600);
        store.call(["check"]).expect(0);
        // To another place, into the control directory, and out of it again.
        let other = placed.scratch.join("fast/other.log");
        let shown = || store.call(["config", "log"]).expect(0).text();
        for to in [
            other.to_str().expect("UTF-8"),
            "",
            log.to_str().expect("UTF-8"),
        ] {
            placed.kill_after_commit(&format!("moved-{}", to.len()));
            store.call(["config", "log", to]).expect(0);
            assert_eq!(shown().trim_end(), to);
            assert_eq!(store.control().join("log").exists(), to.is_empty());
            let logs = fs::read_dir(placed.scratch.join("fast")).expect("listed");
            assert_eq!(logs.count(), usize::from(!to.is_empty()));
            let text = format!("moved-{}\n", to.len());
            assert_eq!(store.run("cat file").expect(0).text(), text);
            store
                .call(["undo", "--dry-run", "1"])
                .expect_one_of(&[0, CONFLICT]);
        }
        let view = store.begin();
        store.call(["config", "log", ""]).expect_one_of(&[CONFLICT]);
        store.abort(&view).expect(0);
        store.call(["deinit"]).expect(0);
        assert!(!log.exists() && !store.control().exists());
    });
}

#[test]
fn unusable_log_is_refused_and_nothing_changes() {
    let placed = Placed::new("unusable-log", User::root);
    let (store, log) = (&placed.store, &placed.log);
    let aside = placed.scratch.join("aside.log");
    let put = |from: &Path| _ = fs::copy(from, log).expect("copied");
    store.run("echo 0 > file; echo 0 > other").expect(0);
    store.call(["service", "stop"]).expect(0);
    fs::copy(log, placed.scratch.join("old.log")).expect("copied");
    placed.kill_after_commit("1");
    store.call(["recover"]).expect(0);
    placed.kill_after_commit("2");
    fs::rename(log, &aside).expect("moved");
    placed.expect_refused("is its file system mounted?");
    put(&placed.scratch.join("old.log"));
    placed.expect_refused("it is an older copy");
    fs::remove_file(log).expect("removed");
    symlink(&aside, log).expect("made");
    placed.expect_refused("it is not a regular file");
    fs::remove_file(log).expect("removed");
    fs::write(log, "").expect("written");
    placed.expect_refused("it is another store's log");
    // Another store cannot take the log that is there, and its own does not fit.
    let other = placed.scratch.join("other");
    fs::create_dir(&other).expect("made");
    let user = User::root(placed.scratch.path());
    let (_, refused) = store_at(&other, &aside, &user);
    refused
        .expect(CANNOT_CREATE)
        .says(&["there is something already"]);
    let own = placed.scratch.join("fast/own.log");
    store_at(&other, &own, &user).1.expect(0);
    put(&own);
    placed.expect_refused("it is another store's log");
    fs::remove_file(log).expect("removed");
    fs::rename(&aside, log).expect("moved back");
    fs::set_permissions(log, fs::Permissions::from_mode(0o666)).expect("opened");
    placed.expect_refused("can be written by others");
    fs::set_permissions(log, fs::Permissions::from_mode(0o600)).expect("closed");
    let fast = placed.scratch.join("fast");
    fs::set_permissions(&fast, fs::Permissions::from_mode(0o777)).expect("opened");
    placed.expect_refused("can be written by others");
    fs::set_permissions(&fast, fs::Permissions::from_mode(0o755)).expect("closed");
    assert_eq!(store.run("cat file other").expect(0).text(), "2\n2\n");
    // While a commit waits for recovery, a copy of the base without the log is not adopted.
    placed.kill_after_commit("3");
    let copy = placed.scratch.join("copy");
    shell(placed.scratch.path(), "cp -a base copy");
    let copy = Store::existing(&copy, &user);
    copy.call(["init", "--adopt"])
        .expect(CANNOT_CREATE)
        .says(&["still to be recovered"]);
    store.call(["recover"]).expect(0);
    store.call(["service", "stop"]).expect(0);
    shell(placed.scratch.path(), "rm -r copy; cp -a base copy");
    copy.call(["init", "--adopt"]).expect(0);
    assert_eq!(copy.run("cat file").expect(0).text(), "3\n");
    assert_eq!(copy.call(["config", "log"]).expect(0).text().trim(), "");
    assert_eq!(store.run("cat file").expect(0).text(), "3\n");
}

#[test]
fn log_that_is_given_up_leaves_the_base_and_says_what_is_lost() {
    let placed = Placed::new("given-up", User::root);
    let (store, log) = (&placed.store, &placed.log);
    store.run("echo 0 > file; echo 0 > other").expect(0);
    store.call(["service", "stop"]).expect(0);
    placed.kill_after_commit("1");
    placed.kill_after_commit("2");
    fs::remove_file(log).expect("removed");
    let base = look(store.path());
    let given_up = store.call(["recover", "--without-log"]).expect(0);
    let texts = ["the base has every commit up to", "only the log knows"];
    let given_up = given_up.says(&texts);
    assert!(given_up.error_text().contains("up to 3"), "{given_up}");
    assert_equal("base", &base, &look(store.path()), &CompareOptions::alike());
    store.call(["check"]).expect(0);
    store.run("echo 4 > file").expect(0);
    assert!(store.control().join("log").exists());
    assert_eq!(store.run("cat file other").expect(0).text(), "4\n2\n");
    // A store that has its log where it always is loses nothing.
    let again = store.call(["recover", "--without-log"]).expect(0);
    again.says(&["is not given up"]);
    assert_eq!(store.run("cat file").expect(0).text(), "4\n");
}

#[test]
fn log_and_base_on_two_file_systems() {
    let test = "log_and_base_on_two_file_systems";
    if !tools_present(test, &["mkfs.ext4", "mkfs.btrfs", "losetup"]) {
        return;
    }
    let scratch = Scratch::new("two-file-systems");
    let devices = (
        LoopDevice::new(&scratch, "fast", "mkfs.ext4 -q", 16),
        LoopDevice::new(&scratch, "slow", "mkfs.btrfs -q", 128),
    );
    let (Some(fast), Some(slow)) = devices else {
        return skip(test, "no loop device can be set up here");
    };
    let base = slow.point.join("base");
    fs::create_dir(&base).expect("made");
    let user = User::root(scratch.path());
    let log = fast.point.join("store.log");
    let (store, made) = store_at(&base, &log, &user);
    made.expect(0);
    let placed = Placed {
        store,
        log,
        scratch,
    };
    let store = &placed.store;
    placed.kill_after_commit("1");
    fast.unmount();
    placed.expect_refused("is its file system mounted?");
    fast.mount();
    assert_eq!(store.run("cat file").expect(0).text(), "1\n");
    // A full log refuses commits, and a checkpoint or more space lets them go on.
    let filler = fast.point.join("filler");
    let fill = format!("dd if=/dev/zero of={} bs=4k status=none", filler.display());
    let _ = Command::new("sh").args(["-c", &fill]).status();
    let carried = "head -c 200000 /dev/urandom | split -b 40000 - part; echo 2 > file";
    let refused = store.run_with(&["--on-conflict", "abort"], carried);
    assert_ne!(refused.code, 0, "{refused}");
    refused.says(&["no space left", "nothing was changed"]);
    assert_eq!(fs::read_to_string(base.join("file")).expect("read"), "1\n");
    fs::remove_file(&filler).expect("removed");
    store.run(carried).expect(0);
    placed.kill_after_commit("3");
    assert_eq!(store.run("cat file").expect(0).text(), "3\n");
    store.call(["check"]).expect(0);
    // A log whose file system is read-only.
    assert!(store.kill_service(), "there is a service");
    let remount = |how: &str| {
        let script = format!("mount -o remount,{how} {}", fast.point.display());
        shell(Path::new("/"), &script);
    };
    remount("ro");
    placed.expect_not_written("ead-only");
    remount("rw");
    assert_eq!(store.run("cat file").expect(0).text(), "3\n");
    store.call(["service", "stop"]).expect(0);
    drop((fast, slow));
}
