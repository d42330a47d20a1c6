//! Other file systems that are mounted inside a store. A view shows an empty directory or file in
//! place of each, a walk over them gives no error, and no transaction changes them.

#![cfg(test)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use atomdir_testing::{
    Fixture, Outcome, for_each_owner, shell, tools_present, unmount, users_can_mount,
};

const TREE: &str = "
mkdir -p d/mnt d/same other; echo beside > d/beside; echo covered > d/mnt/covered
echo covered > d/file; echo source > other/source";

/// A tmpfs on `d/mnt`, the store's own `other` on `d/same`, its own `other/source` on
/// the file `d/file`; unmounted when the test ends.
struct Mounted(Vec<PathBuf>);

impl Mounted {
    fn within(fixture: &Fixture) -> Mounted {
        let points = ["d/mnt", "d/same", "d/file"].map(|point| fixture.base.join(point));
        let mounted = Mounted(points.to_vec());
        shell(
            &fixture.base,
            "mount -t tmpfs none d/mnt; echo inside > d/mnt/inside; chmod 777 d/mnt
            mount --bind other d/same; mount --bind other/source d/file",
        );
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.iter().for_each(|point| unmount(point));
    }
}

/// Checks in both kinds of view, as root and as an ordinary user.
fn in_each_view(test: &str, check: impl Fn(&Fixture, &dyn Fn(&str) -> Outcome)) {
    if !users_can_mount(test) {
        return;
    }
    for_each_owner(test, |owner| {
        for view in ["exact", "native"] {
            let fixture = Fixture::owned_by(test, owner, TREE);
            let mounted = Mounted::within(&fixture);
            check(&fixture, &|script| {
                fixture.store.run_with(&["--view", view], script)
            });
            let inside = fs::read(fixture.base.join("d/mnt/inside")).expect("read");
            assert_eq!(inside, b"inside\n", "the mounted file system was changed");
            drop(mounted);
            let covered = ["d/mnt/covered", "d/file"].map(|name| fixture.base.join(name));
            for name in covered {
                let text = fs::read(&name).expect("read");
                assert_eq!(text, b"covered\n", "{} was changed", name.display());
            }
            fixture.store.assert_at_rest();
        }
    });
}

#[test]
fn programs_walk_over_mount_points() {
    in_each_view("programs_walk_over_mount_points", |fixture, run| {
        let copied = fixture.scratch.join("signs");
        shell(fixture.scratch.path(), "rm -rf signs; mkdir -m 1777 signs");
        let copied = copied.display();
        let script = format!(
            "find . > {copied}/found; cp -a d {copied}/copy; tar cf {copied}/tar .
            stat -c '%n %F %a %s' d/mnt d/same d/file
            ls -A d/mnt d/same; cat d/file d/beside; ! stat d/mnt/inside"
        );
        let outcome = run(&script).expect(0);
        let expected = "d/mnt directory 555 0\nd/same directory 555 0\n\
            d/file regular empty file 444 0\nd/mnt:\n\nd/same:\nbeside\n";
        assert_eq!(outcome.text(), expected);
        let found = fs::read_to_string(fixture.scratch.join("signs/found")).expect("read");
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        let expected = [
            ".",
            "./d",
            "./d/beside",
            "./d/file",
            "./d/mnt",
            "./d/same",
            "./other",
            "./other/source",
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn commits_work_beside_mount_points() {
    in_each_view("commits_work_beside_mount_points", |fixture, run| {
        run(
            "ls -lR . > /dev/null; echo new > d/new; mkdir d/e; echo 1 > d/e/f
            rm d/beside; echo more >> other/source; mv d/e e",
        )
        .expect(0);
        assert!(fixture.base.join("d/new").is_file());
        assert!(fixture.base.join("e/f").is_file());
        assert!(!fixture.base.join("d/beside").exists());
        // Mounts move along with a directory that holds them.
        let exact = ["--view", "exact"];
        fixture.store.run_with(&exact, "mv d dd").expect(0);
        assert!(fixture.base.join("dd/mnt/inside").is_file());
        fixture.store.run_with(&exact, "mv dd d").expect(0);
        let script = ["--isolation", "serializable", "--view", "exact"];
        let outcome = fixture.store.run_with(
            &script,
            "find . -ls > /dev/null; cat d/file; ls d/mnt d/mnt/x || true; echo s > serial",
        );
        outcome.expect(0);
    });
}

#[test]
fn mount_points_are_neither_changed_nor_removed() {
    if !tools_present(
        "mount_points_are_neither_changed_nor_removed",
        &["setfattr"],
    ) {
        return;
    }
    in_each_view("mount_points_are_neither_changed_nor_removed", |_, run| {
        for script in [
            "mkdir d/mnt/new",
            "echo > d/mnt/new",
            "echo > d/mnt/inside",
            "ln d/beside d/same/linked",
            "mv d/beside d/mnt/",
            "echo more >> d/file",
            "chmod 700 d/mnt",
            "touch d/file",
            "setfattr -n user.x -v y d/file",
            "rmdir d/mnt",
            "rm -f d/file",
            "rm -rf d",
            "mv -T d/mnt d/moved",
            "mkdir d/n; mv -T d/n d/same",
            "echo > d/n; mv -T d/n d/file",
        ] {
            let outcome = run(script);
            assert_ne!(outcome.code, 0, "{script}: {outcome}");
        }
        // Nothing was left open, and the store still accepts commits.
        run("echo 2 > d/beside").expect(0);
    });
}

#[test]
fn exact_views_say_why_a_mount_point_cannot_be_changed() {
    let fixture = Fixture::new("mount-point-errors", TREE);
    let _mounted = Mounted::within(&fixture);
    for (script, error) in [
        ("mkdir d/mnt/new", "Read-only file system"),
        ("dd if=/dev/zero of=d/file count=1", "Read-only file system"),
        ("chmod 700 d/mnt", "Read-only file system"),
        ("rmdir d/mnt", "Device or resource busy"),
        ("rm -f d/file", "Device or resource busy"),
        ("mv -T d/mnt d/moved", "Device or resource busy"),
    ] {
        let outcome = fixture.store.run_with(&["--view", "exact"], script);
        assert!(outcome.error_text().contains(error), "{script}: {outcome}");
    }
    // The overlay lets a program remove a directory of its lower layer; the commit refuses.
    let outcome = fixture.store.run_with(&["--view", "native"], "rmdir d/mnt");
    outcome
        .expect(74)
        .says(&["d/mnt", "a file system is mounted on it"]);
}

/// Mounts, for `owner`, a FUSE file system whose server does not answer or has gone.
fn mount_unanswered(point: &Path, owner: u32) -> File {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.expect("root may open it");
    let number = device.as_raw_fd();
    let data = format!("fd={number},rootmode=40000,user_id={owner},group_id=0");
    let data = CString::new(data).expect("it has no zero byte");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("dead", point, "fuse", flags, Some(data.as_c_str())).expect("mounted");
    device
}

#[test]
fn unresponsive_mounts_do_not_block_the_store() {
    for_each_owner("unresponsive_mounts_do_not_block_the_store", |owner| {
        let fixture = Fixture::owned_by("mount-point-dead", owner, "mkdir gone mute foreign");
        let points = ["gone", "mute", "foreign"].map(|name| fixture.base.join(name));
        let _mounted = Mounted(points.to_vec());
        let exact = ["--view", "exact"];
        // One mount that gives errors comes before those that never answer.
        drop(mount_unanswered(&points[0], 0));
        fixture.store.run_with(&exact, "stat gone").expect(0);
        let _mute = mount_unanswered(&points[1], 0);
        let _foreign = mount_unanswered(&points[2], 5);
        for view in ["exact", "native"] {
            let script = "ls -lR . > /dev/null; stat gone mute foreign > /dev/null; echo 1 >> file";
            fixture.store.run_with(&["--view", view], script).expect(0);
        }
        let left = fs::read_to_string(fixture.base.join("file")).expect("read");
        assert_eq!(left, "1\n1\n");
    });
}

/// A bind mount there shows only in the view's own mount namespace.
#[test]
fn something_can_be_bound_on_a_mount_point() {
    let fixture = Fixture::new("mount-point-bound", TREE);
    let _mounted = Mounted::within(&fixture);
    for view in ["exact", "native"] {
        let script = "unshare -m sh -ec 'mount --bind /proc d/mnt; test -e d/mnt/self
            mount --bind /dev/null d/file; test -c d/file'; echo 1 > done";
        fixture.store.run_with(&["--view", view], script).expect(0);
    }
}
