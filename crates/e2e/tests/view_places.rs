//! Views keep their paths when the file system gets another device number, two stores never share a
//! place for them, and the places are left without mounts.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use atomdir_testing::{
    Fixture, Outcome, Scratch, Store, User, binary, capture_output, for_each_owner, shell, skip,
    tools_present, users_can_mount,
};

/// More than other tests have in use at the same time.
const DEVICES_MAX: u32 = 32;

/// A file system in the file `NAME.image`, mounted at `NAME`.
struct Image<'a> {
    scratch: &'a Scratch,
    name: &'a str,
}

impl Image<'_> {
    fn point(&self) -> PathBuf {
        self.scratch.join(self.name)
    }

    fn mount(&self) {
        let name = self.name;
        shell(
            self.scratch.path(),
            &format!("mkdir -p {name}; mount -o loop {name}.image {name}"),
        );
    }

    fn device(&self) -> u64 {
        fs::metadata(self.point()).expect("mounted").dev()
    }

    /// Mounts it again. Returns whether it then has another device number.
    fn remount_elsewhere(&self) -> bool {
        let before = self.device();
        shell(self.scratch.path(), &format!("umount {}", self.name));
        for number in 0..DEVICES_MAX {
            self.mount();
            if self.device() != before {
                return true;
            }
            // Another file system takes this device.
            shell(
                self.scratch.path(),
                &format!(
                    "umount {}; truncate -s 2M {number}.filler; mkfs.ext4 -q {number}.filler
                     mkdir filler-{number}; mount -o loop {number}.filler filler-{number}",
                    self.name
                ),
            );
        }
        false
    }
}

/// Makes `one.image`, with a file system and a base in it.
fn make(scratch: &Scratch, user: &User) {
    shell(
        scratch.path(),
        &format!(
            "truncate -s 24M one.image; mkfs.ext4 -q -m 0 one.image; mkdir one
             mount -o loop one.image one; mkdir one/base; echo old > one/base/file
             chown -R {}:{} one/base",
            user.uid, user.gid
        ),
    );
}

/// Two new file systems give the same inode to the control directories of their stores. If these are
/// made at the same moment, the stores want the same place. So one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn can_mount(test: &str) -> bool {
    if !tools_present(test, &["mkfs.ext4"]) {
        return false;
    }
    let scratch = Scratch::new("loop-trial");
    let trial = "truncate -s 2M image; mkfs.ext4 -q image; mkdir point
        mount -o loop image point || touch refused";
    shell(scratch.path(), trial);
    let refused = scratch.join("refused").exists();
    if refused {
        skip(test, "no file system in a file can be mounted here");
    }
    !refused
}

/// Runs `atomdir ARGUMENTS` as the store's user, in this directory.
fn at(store: &Store, directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(binary());
    store.user().dress(&mut command);
    capture_output(command.current_dir(directory).args(arguments))
}

#[test]
fn view_path_is_the_same_under_another_device_number() {
    let test = "view_path_is_the_same_under_another_device_number";
    if !can_mount(test) {
        return;
    }
    let _alone = ALONE.lock();
    for_each_owner(test, |owner| {
        let scratch = Scratch::new("view-device");
        let user = owner(scratch.path());
        make(&scratch, &user);
        let (name, scratch) = ("one", &scratch);
        let image = Image { scratch, name };
        let store = Store::init(&image.point().join("base"), &user);
        let view = store.begin();
        store.exec(&view, "echo new > file").expect(0);
        store.call(["sync", &view.id]).expect(0);
        store.kill_service();
        assert!(image.remount_elsewhere(), "it always gets the same device");
        let status = store.call(["status", &view.id]).expect(0).text();
        let path = view.path.to_string_lossy();
        assert!(status.contains(&*path), "{status} does not name {path}");
        let seen = at(&store, Path::new("/"), &["-C", &path, "diff"]).expect(0);
        assert!(seen.text().contains("+new"), "{seen}");
        let read = format!("cat '{path}/file'");
        let mut command = Command::new("sh");
        user.dress(command.arg("-c").arg(read));
        assert_eq!(capture_output(&mut command).expect(0).text(), "new\n");
        store.commit(&view).expect(0);
        store.assert_at_rest();
    });
}

/// An image has the store's id, and the inodes and times of all its files.
#[test]
fn store_and_its_image_have_views_at_different_places() {
    let test = "store_and_its_image_have_views_at_different_places";
    if !can_mount(test) {
        return;
    }
    let _alone = ALONE.lock();
    for_each_owner(test, |owner| {
        let scratch = Scratch::new("view-image");
        let user = owner(scratch.path());
        make(&scratch, &user);
        let images = ["one", "two"].map(|name| Image {
            scratch: &scratch,
            name,
        });
        let [first, second] = images.each_ref().map(|image| image.point().join("base"));
        let first = Store::init(&first, &user);
        first.call(["service", "stop"]).expect(0);
        shell(scratch.path(), "umount one; cp one.image two.image");
        images.iter().for_each(Image::mount);
        let second = Store::existing(&second, &user);
        // Whichever is killed and starts again later, neither takes the other's place.
        for killed in [None, Some(&first), Some(&second)] {
            if let Some(killed) = killed {
                assert!(killed.kill_service());
            }
            let views = [&first, &second].map(Store::begin);
            assert_ne!(views[0].path.parent(), views[1].path.parent());
            for (store, view, text) in [(&first, &views[0], "1"), (&second, &views[1], "2")] {
                let script = format!("echo {text} > file; atomdir=$0; \"$atomdir\" run -- true");
                let arguments = ["exec", &view.id, "--", "sh", "-ec", &script];
                let binary = binary().to_string_lossy().into_owned();
                let arguments: Vec<&str> = arguments.into_iter().chain([&*binary]).collect();
                store.call(arguments).expect(0);
            }
            // A path in a view means that store's transaction.
            for (view, text) in views.iter().zip(["+1", "+2"]) {
                let seen = at(&first, &view.path, &["diff"]).expect(0);
                assert!(seen.text().contains(text), "{seen}");
            }
            for (store, view) in [&first, &second].into_iter().zip(&views) {
                store.abort(view).expect(0);
            }
        }
        first.assert_at_rest();
        second.assert_at_rest();
    });
}

/// fusermount unmounts nothing then.
#[test]
fn users_mounts_are_removed_without_etc_mtab() {
    let test = "users_mounts_are_removed_without_etc_mtab";
    if !users_can_mount(test) || !tools_present(test, &["setpriv", "unshare"]) {
        return;
    }
    let fixture = Fixture::owned_by("no-mtab", User::ordinary, "echo old > file");
    let user = fixture.store.user();
    let script = format!(
        r#"
        mkdir upper work
        mount -t overlay -o lowerdir=/etc,upperdir=upper,workdir=work etc /etc
        rm /etc/mtab
        cd base
        export HOME='{home}' XDG_RUNTIME_DIR='{home}/run'
        exec setpriv --reuid {uid} --regid {gid} --clear-groups sh -ec '
            for number in 1 2; do
                "$0" run -q -- sh -c "echo $number > file"
                "$0" service stop
                if grep "$XDG_RUNTIME_DIR" /proc/self/mountinfo; then exit 1; fi
            done
        ' '{program}'
        "#,
        home = user.home().display(),
        uid = user.uid,
        gid = user.gid,
        program = binary().display(),
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &script]);
    capture_output(command.current_dir(fixture.scratch.path())).expect(0);
    assert_eq!(fs::read(fixture.base.join("file")).expect("read"), b"2\n");
}
