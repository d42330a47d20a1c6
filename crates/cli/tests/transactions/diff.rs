use crate::store::Store;
use rustix::fs::{XattrFlags, removexattr, setxattr};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[test]
fn every_kind_of_change_is_shown_in_every_form() {
    let store = Store::new("diff");
    let prepare = "seq 1 9 > numbers; printf 'a\\0b' > binary; mkdir d; echo x > d/gone; \
                   echo m > mode; echo t > type; echo r > before";
    store.check(&["run", "--", "sh", "-c", prepare]);
    let (id, view) = store.begin();
    let change = "sed -i s/5/five/ numbers; printf 'a\\0c' > binary; rm -r d; chmod 600 mode; \
                  rm type; ln -s target type; mv before after; printf no-newline > 'odd\nname'";
    store.check(&["exec", &id, "--", "sh", "-c", change]);
    assert_eq!(
        store.check(&["diff", &id, "--name-status"]),
        "R before -> after\nM binary\nD d\nD d/gone\nM mode\nM numbers\nA \"odd\\nname\"\nT type\n"
    );
    assert_eq!(
        store.check(&["diff", &id, "-z", "--name-only", "--", "numbers"]),
        "numbers\0"
    );
    assert_eq!(
        store.check(&["diff", &id, "-z", "--name-status", "--", "before"]),
        "R\0before\0after\0"
    );
    let patch = store.check(&["diff", &id]);
    assert_eq!(patch, store.check(&["diff", "-p", &id]));
    for part in [
        "rename from before\nrename to after\n",
        "diff --git a/binary b/binary\nBinary files a/binary and b/binary differ\n",
        "diff --git a/d/gone b/d/gone\ndeleted file mode 100644\n--- a/d/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "# mode: mode 0600 instead of 0644\n",
        "--- a/numbers\n+++ b/numbers\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n",
        "+++ \"b/odd\\nname\"\n@@ -0,0 +1 @@\n+no-newline\n\\ No newline at end of file\n",
        "diff --git a/type b/type\ndeleted file mode 100644\n--- a/type\n+++ /dev/null\n@@ -1 +0,0 @@\n-t\n\
         diff --git a/type b/type\nnew file mode 120000\n--- /dev/null\n+++ b/type\n@@ -0,0 +1 @@\n+target\n",
    ] {
        assert!(patch.contains(part), "{part}\nis not in\n{patch}");
    }
    assert_eq!(
        store.check(&["diff", &id, "--", "before"]),
        "diff --git a/before b/after\nsimilarity index 100%\nrename from before\nrename to after\n"
    );
    let stat = store.check(&["diff", &id, "--stat", "--", "numbers", "binary"]);
    assert_eq!(
        stat,
        " binary  | binary\n numbers | 2 +-\n 2 changes, 1 line added, 1 line removed\n"
    );
    let json = store.json(&["diff", &id, "--", "mode"]);
    assert_eq!(json["changes"][0]["before"]["mode"], "0644");
    assert_eq!(json["changes"][0]["after"]["mode"], "0600");
    assert_eq!(json["changes"][0]["contents"], "same");
    fs::set_permissions(view.join("mode"), PermissionsExt::from_mode(0o644)).unwrap();
    fs::remove_file(view.join("type")).unwrap();
    symlink("elsewhere", view.join("type")).unwrap();
    assert_eq!(
        store.check(&["diff", &id, "--name-status", "--", "type"]),
        "T type\n"
    );
}

#[test]
fn extended_attributes_are_shown_by_name() {
    let store = Store::new("diff-xattrs");
    let set = |file: &Path, name: &str, value: &str| {
        setxattr(file, name, value.as_bytes(), XattrFlags::empty()).unwrap();
    };
    let file = store.path.join("file");
    for name in ["user.same", "user.changed", "user.gone"] {
        set(&file, name, "old");
    }
    let (id, view) = store.begin();
    let file = view.join("file");
    set(&file, "user.changed", "new");
    set(&file, "user.new", "new");
    removexattr(&file, "user.gone").unwrap();
    assert_eq!(
        store.check(&["diff", &id]),
        "# file: changed extended attribute user.changed\n\
         # file: deleted extended attribute user.gone\n\
         # file: new extended attribute user.new\n"
    );
    let json = store.json(&["diff", &id]);
    let changes = &json["changes"][0]["attributes"];
    assert_eq!(changes[1]["name"], "user.gone");
    assert_eq!(changes[1]["change"], "deleted");
}

/// Lines that `git apply` skips show the changes that git's format cannot express.
#[test]
fn diff_comments_on_changes_that_git_cannot_express() {
    let store = Store::new("diff-notes");
    let prepare = "mkdir left closed moved; touch closed/x moved/x; mkfifo pipe; touch times";
    store.check(&["run", "--", "sh", "-c", prepare]);
    let (id, _) = store.begin();
    let change = "rmdir left; mkdir new; mkdir full; touch full/x; chmod 700 closed; rm pipe; \
                  mkfifo other; mv moved to; chown 1:2 file; touch -d @0 times; \
                  touch set; chmod 4755 set";
    store.check(&["exec", &id, "--", "sh", "-c", change]);
    let patch = store.check(&["diff", &id]);
    let notes: Vec<&str> = patch.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        notes[..9],
        [
            "# closed: mode 0700 instead of 0755",
            "# file: owner 1:2 instead of 0:0",
            "# left: deleted directory, mode 0755",
            "# new: new directory, mode 0755",
            "# other: new fifo, mode 0644",
            "# pipe: deleted fifo, mode 0644",
            "# set: file, mode 4755 (set-user-id)",
            notes[7],
            "# to: directory renamed from moved",
        ]
    );
    assert!(notes[7].starts_with("# times: modified 1970-01-01T00:00:00.000000000Z instead of 20"));
    assert_eq!(notes.len(), 9);
}

/// The unified diff is one that patch(1) applies.
#[test]
fn patch_understands_the_diff() {
    let store = Store::new("patch");
    store.check(&["run", "--", "sh", "-c", "seq 1 100 > a; seq 1 5 > b"]);
    store.shell("mkdir \"$PWD.copy\" && cp a b \"$PWD.copy\"");
    let (id, _) = store.begin();
    let change = "sed -i -e 3d -e 50s/^/x/ -e '$s/$/\\nend/' a; rm b; printf 'new\\nfile' > c";
    store.check(&["exec", &id, "--", "sh", "-c", change]);
    let outcome = store.shell(&format!(
        "$ATOMDIR diff {id} | patch -p1 -E -d \"$PWD.copy\" && $ATOMDIR commit -q {id} &&
         diff -r --exclude=file --exclude=.atomdir . \"$PWD.copy\"; status=$?
         rm -r \"$PWD.copy\"; exit $status"
    ));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}
