//! What the directory above a store, or its control directory, hands down must not reach objects that
//! transactions make elsewhere: these get what a plain program's objects get there.

use std::fs;

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Store, capture_output, look, shell, tools_present};

/// Ways in which a directory hands something down. The last word is the directory.
const HANDS_DOWN: [&str; 4] = [
    "setfacl -d -m u:65534:rwx,g:65534:rwx",
    "chattr +A",
    "chattr +S",
    "chattr -p 4321 +P",
];

const MAKE: &str = "umask 027; for d in private group shared; do
    echo secret > $d/new; mkdir $d/made; echo secret > $d/made/below; ln -s new $d/link
    mkfifo $d/fifo; echo more >> $d/old; done; echo top > top";

const PREPARE: &str = "umask 022; mkdir private group shared; chmod 2770 group
    setfacl -d -m u:1:rwx,o::- shared; for d in private group shared; do echo old > $d/old; done";

fn flags(base: &std::path::Path) -> String {
    let script =
        "lsattr -pRd . 2>/dev/null; find . -name .atomdir -prune -o -type f -print | sort |
        xargs lsattr -p 2>/dev/null | sed 's/e//; s/-*//'";
    shell(base, script).text()
}

#[test]
fn new_objects_inherit_from_their_directory_alone() {
    let test = "new_objects_inherit_from_their_directory_alone";
    if !tools_present(test, &["setfacl", "chattr"]) {
        return;
    }
    Fixture::for_each_owner("inherited", "true", |one| {
        let user = one.store.user();
        for (number, hands_down) in HANDS_DOWN.iter().enumerate() {
            for view in ["exact", "native"] {
                let above = one.base.join(format!("../above-{number}-{view}"));
                fs::create_dir(&above).expect("made");
                shell(&above, &format!("chown {}:{} .", user.uid, user.gid));
                let as_user = |script: &str| {
                    let mut command = std::process::Command::new("sh");
                    user.dress(&mut command);
                    let script = format!("cd {}; {script}", above.display());
                    capture_output(command.args(["-c", &script]))
                };
                as_user("mkdir own").expect(0);
                // The file system may lack it, and only root sets a project.
                if as_user(&format!("{hands_down} own 2>/dev/null")).code != 0 {
                    continue;
                }
                as_user("mkdir own/plain own/store").expect(0);
                let (plain, store) = (above.join("own/plain"), above.join("own/store"));
                let store = Store::init(&store, user);
                store.call(["service", "stop"]).expect(0);
                for directory in ["plain", "store"] {
                    as_user(&format!(
                        "cd own/{directory}; setfacl -bk .; chattr -AS .; chattr -p 0 -P . 2>/dev/null
                        {PREPARE}"
                    ))
                    .expect(0);
                }
                if number % 2 == 0 {
                    // The store was made without the directory above, and gets it later.
                    let stage = "own/store/.atomdir own/store/.atomdir/stage";
                    as_user(&format!("for d in {stage}; do {hands_down} $d; done")).expect(0);
                }
                as_user(&format!("cd own/plain; {MAKE}")).expect(0);
                store.run_with(&["--view", view], MAKE).expect(0);
                let what = format!("{hands_down}, {view}");
                let options = CompareOptions::alike();
                assert_equal(&what, &look(&plain), &look(store.path()), &options);
                assert_eq!(flags(&plain), flags(store.path()), "{what}");
                store.assert_at_rest();
            }
        }
    });
}
