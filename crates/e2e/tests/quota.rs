//! Staged files of users of root's store belong to those users: they count against the
//! users' quota and cannot take the blocks that the file system reserves for root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use atomdir_testing::exit_code::INPUT_OUTPUT;
use atomdir_testing::{Outcome, Scratch, Store, User, View, capture_output, shell, tools_present};

/// The share of a test's file system, of 48 MiB, that is reserved for root.
const RESERVED_PERCENT: u64 = 20;

/// Root's store on a file system with reserved blocks, and a user whom root lists.
struct Shared {
    store: Store,
    stranger: User,
    base: PathBuf,
    _scratch: Scratch,
}

impl Shared {
    /// Returns `None` if the test is skipped.
    fn new(test: &str) -> Option<Shared> {
        if !tools_present(test, &["mkfs.ext4"]) {
            return None;
        }
        let scratch = Scratch::new(test);
        let make = format!(
            "truncate -s 48M image; mkfs.ext4 -q -m {RESERVED_PERCENT} image
             mkdir small; mount -o loop image small; mkdir -p small/base/own"
        );
        shell(scratch.path(), &make);
        let base = scratch.join("small/base");
        let stranger = User::stranger(scratch.path());
        chown(base.join("own"), Some(stranger.uid), Some(stranger.gid)).expect("given away");
        let store = Store::init(&base, &User::root(scratch.path()));
        store.call(["config", "allow", stranger.name]).expect(0);
        store.call(["service", "start"]).expect(0);
        Some(Shared {
            store,
            stranger,
            base,
            _scratch: scratch,
        })
    }

    fn call(&self, arguments: &[&str]) -> Outcome {
        self.store.call_as(&self.stranger, arguments)
    }

    fn begin(&self) -> View {
        let text = self.call(&["begin"]).expect(0).text();
        let mut lines = text.lines();
        let id = lines.next().expect("an id").to_owned();
        let path = lines.next().expect("a path").into();
        View { id, path }
    }

    fn exec(&self, view: &View, script: &str) -> Outcome {
        self.call(&["exec", &view.id, "--", "sh", "-c", script])
    }

    /// The stranger fills the file system, outside any transaction.
    fn take_all_that_is_left(&self) -> PathBuf {
        let ballast = self.base.join("own/ballast");
        let mut command = Command::new("sh");
        self.stranger.dress(&mut command);
        // The second `cat` takes what is left of the last piece.
        let script = "cat /dev/zero > ballast; cat /dev/zero >> ballast; true";
        let directory = self.base.join("own");
        capture_output(command.args(["-c", script]).current_dir(directory)).expect(0);
        self.assert_users_have_none_left();
        ballast
    }

    /// Some blocks may be left, too few for a single write.
    fn assert_users_have_none_left(&self) {
        let space = self.space();
        let (left, all) = (space.f_bavail, space.f_blocks);
        assert!(left * 100 < all, "{left} of {all} blocks are left");
    }

    fn assert_reserve_is_left(&self) {
        let space = self.space();
        let reserved = space.f_bfree - space.f_bavail;
        let expected = space.f_blocks * (RESERVED_PERCENT - 1) / 100;
        assert!(reserved >= expected, "{reserved} blocks are left for root");
    }

    fn space(&self) -> rustix::fs::StatVfs {
        rustix::fs::statvfs(&self.base).expect("the file system answers")
    }
}

/// Everything in the directory of staged objects.
fn staged(directory: &Path, found: &mut Vec<fs::Metadata>) {
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("listed").path();
        let metadata = fs::symlink_metadata(&path).expect("looked at");
        if metadata.is_dir() {
            staged(&path, found);
        }
        found.push(metadata);
    }
}

#[test]
fn staging_leaves_blocks_reserved_for_root() {
    let Some(shared) = Shared::new("staging_leaves_blocks_reserved_for_root") else {
        return;
    };
    let view = shared.begin();
    let filled = shared.exec(
        &view,
        "echo small > own/small; head -c 60000000 /dev/zero > own/huge",
    );
    assert_ne!(filled.code, 0, "{filled}");
    filled.says(&["no space left"]);
    shared.assert_users_have_none_left();
    shared.assert_reserve_is_left();
    // Root can still write.
    let script = "head -c 1000000 /dev/zero > roots";
    shared
        .store
        .run_with(&["--view", "exact"], script)
        .expect(0);
    // The user's transaction can continue, too, with less in it.
    shared
        .exec(&view, "test $(cat own/small) = small; rm own/huge")
        .expect(0);
    shared.call(&["commit", &view.id]).expect(0);
    let small = fs::read_to_string(shared.base.join("own/small"));
    assert_eq!(small.expect("read"), "small\n");
    let roots = fs::metadata(shared.base.join("roots")).expect("there");
    assert_eq!((roots.len(), roots.uid()), (1_000_000, 0));
    shared.store.call(["check"]).expect(0);
    shared.store.assert_at_rest();
}

#[test]
fn commit_over_quota_keeps_the_transaction() {
    let Some(shared) = Shared::new("commit_over_quota_keeps_the_transaction") else {
        return;
    };
    let file = shared.base.join("own/file");
    fs::write(&file, vec![7; 900_000]).expect("written");
    chown(&file, Some(shared.stranger.uid), Some(shared.stranger.gid)).expect("given away");
    let fits = shared.begin();
    shared.exec(&fits, "echo fits > own/fits").expect(0);
    // One page is staged; the commit will complete the file.
    let grows = shared.begin();
    let write = "printf x | dd of=own/file bs=1 seek=5000 conv=notrunc status=none";
    shared.exec(&grows, write).expect(0);
    let ballast = shared.take_all_that_is_left();
    shared.call(&["commit", &fits.id]).expect(0);
    let landed = fs::read_to_string(shared.base.join("own/fits"));
    assert_eq!(landed.expect("read"), "fits\n");
    shared
        .call(&["commit", &grows.id])
        .expect(INPUT_OUTPUT)
        .says(&["space"]);
    shared.assert_reserve_is_left();
    assert_eq!(fs::read(&file).expect("read"), vec![7; 900_000]);
    fs::remove_file(ballast).expect("removed");
    shared.call(&["commit", &grows.id]).expect(0);
    assert_eq!(fs::read(&file).expect("read")[4_999..5_002], [7, b'x', 7]);
    shared.store.call(["check"]).expect(0);
    shared.store.assert_at_rest();
}

#[test]
fn staged_files_belong_to_the_user_and_are_private() {
    let Some(shared) = Shared::new("staged_files_belong_to_the_user_and_are_private") else {
        return;
    };
    let view = shared.begin();
    shared
        .exec(
            &view,
            "mkdir own/dir; echo new > own/dir/file; echo x > own/x",
        )
        .expect(0);
    let stage = shared.base.join(".atomdir/stage");
    let mut found = Vec::new();
    staged(&stage, &mut found);
    assert!(found.iter().any(fs::Metadata::is_file));
    for metadata in &found {
        assert_eq!(metadata.uid(), shared.stranger.uid, "{metadata:?}");
        assert_eq!(metadata.mode() & 0o077, 0, "{metadata:?}");
    }
    let metadata = fs::metadata(&stage).expect("looked at");
    let mode = metadata.permissions().mode() & 0o7777;
    assert_eq!((metadata.uid(), mode), (0, 0o700));
    // What root's transactions stage belongs to root.
    let roots = shared.store.begin();
    shared.store.exec(&roots, "echo x > x").expect(0);
    found.clear();
    staged(&stage.join(&roots.id), &mut found);
    assert!(found.iter().any(fs::Metadata::is_file));
    assert!(found.iter().all(|metadata| metadata.uid() == 0));
    shared.store.commit(&roots).expect(0);
    shared.call(&["commit", &view.id]).expect(0);
    let landed = fs::metadata(shared.base.join("own/dir/file")).expect("there");
    assert_eq!((landed.uid(), landed.gid()), (5, 60));
    shared.store.assert_at_rest();
}
