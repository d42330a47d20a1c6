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
    let unified = store.check(&["diff", &id]);
    for part in [
        "R before -> after\nM binary\nBinary files differ\n",
        "D d/gone\ndeleted file mode 0644\n--- a/d/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "M mode\nold file mode 0644\nnew file mode 0600\n",
        "M numbers\n--- a/numbers\n+++ b/numbers\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n",
        "+++ \"b/odd\\nname\"\n@@ -0,0 +1 @@\n+no-newline\n\\ No newline at end of file\n",
        "T type\nold file mode 0644\nnew symlink mode 0777\n--- a/type\n+++ b/type\n",
    ] {
        assert!(unified.contains(part), "{part}\nis not in\n{unified}");
    }
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
        "M file\nchanged attribute user.changed\ndeleted attribute user.gone\nnew attribute user.new\n"
    );
    let json = store.json(&["diff", &id]);
    let changes = &json["changes"][0]["attributes"];
    assert_eq!(changes[1]["name"], "user.gone");
    assert_eq!(changes[1]["change"], "deleted");
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
    let told = store.shell(&format!(
        "$ATOMDIR diff {id} | patch -p1 -E -d \"$PWD.copy\" && $ATOMDIR commit -q {id} &&
         diff -r --exclude=file --exclude=.atomdir . \"$PWD.copy\"; status=$?
         rm -r \"$PWD.copy\"; exit $status"
    ));
    assert_eq!(told.code, Some(0), "{told:?}");
}
