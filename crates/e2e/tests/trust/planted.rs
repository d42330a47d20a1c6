//! Control directories at places where a stranger can make or replace them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::NOT_PERMITTED;
use atomdir_testing::{
    Outcome, Scratch, Store, User, atomdir_in, binary, capture_output, for_each_owner, shell,
    tools_present,
};

fn touch(user: &User, directory: &Path) -> Outcome {
    atomdir_in(user, directory, ["run", "--", "touch", "touched"])
}

fn give(path: &Path, user: &User) {
    chown(path, Some(user.uid), Some(user.gid)).expect("given");
}

/// In a directory such as /tmp, anyone can put a `.atomdir` beside everybody's files, and so
/// above them.
#[test]
fn store_planted_in_a_sticky_directory_is_ignored() {
    for_each_owner("planted-sticky", |owner| {
        let scratch = Scratch::new("planted-sticky");
        let (victim, stranger) = (owner(scratch.path()), User::stranger(scratch.path()));
        shell(
            scratch.path(),
            "mkdir -m 1777 tmp; mkdir tmp/.atomdir tmp/work tmp/work/deep",
        );
        give(&scratch.join("tmp/.atomdir"), &stranger);
        for own in ["tmp/work", "tmp/work/deep"] {
            give(&scratch.join(own), &victim);
        }
        let work = scratch.join("tmp/work");
        for directory in [&work, &work.join("deep")] {
            touch(&victim, directory)
                .expect(NOT_PERMITTED)
                .says(&["not trusted", "tmp/.atomdir' belongs to user games"]);
        }
        // A file that names a control directory is not followed either.
        shell(
            scratch.path(),
            "rmdir tmp/.atomdir; printf '/\\nroot 1\\n' > tmp/.atomdir",
        );
        give(&scratch.join("tmp/.atomdir"), &stranger);
        touch(&victim, &work)
            .expect(NOT_PERMITTED)
            .says(&["not trusted"]);
        // The planted file does not keep other users from making stores of their own.
        let store = Store::init(&work, &victim);
        touch(&victim, &work.join("deep")).expect(0);
        assert!(work.join("deep/touched").exists());
        let within = format!("cd deep; '{}' status", binary().display());
        store.run(&within).expect(0);
        store.assert_at_rest();
    });
}

/// Root's store is not safe if somebody can rename a directory above it.
#[test]
fn store_below_a_replaceable_directory_is_untrusted() {
    let scratch = Scratch::new("above");
    let (root, stranger) = (User::root(scratch.path()), User::stranger(scratch.path()));
    shell(scratch.path(), "mkdir -p above/site");
    let (above, site) = (scratch.join("above"), scratch.join("above/site"));
    let store = Store::init(&site, &root);
    touch(&root, &site).expect(0);
    let refused = |why: &str| {
        touch(&root, &site)
            .expect(NOT_PERMITTED)
            .says(&["not trusted", why]);
    };
    give(&above, &stranger);
    refused("above' belongs to user games");
    give(&above, &root);
    for mode in ["0777", "0775"] {
        shell(
            scratch.path(),
            &format!("chmod {mode} above; chgrp 60 above"),
        );
        refused("above' can be written by others");
    }
    shell(scratch.path(), "chmod 1777 above");
    touch(&root, &site).expect(0);
    // In a sticky directory the store's root itself must belong to root.
    give(&site, &stranger);
    refused("site' belongs to user games");
    give(&site, &root);
    shell(scratch.path(), "chmod 0777 above/site/.atomdir");
    refused(".atomdir' can be written by others");
    shell(scratch.path(), "chmod 0711 above/site/.atomdir");
    // Others may write in a shared tree; that gives them no power over the store.
    shell(scratch.path(), "chmod 0777 above/site");
    touch(&root, &site).expect(0);
    store.assert_at_rest();
    shell(
        scratch.path(),
        "mkdir elsewhere; chmod 777 elsewhere; mkdir other",
    );
    let control = scratch.join("elsewhere/control");
    let init = ["init".as_ref(), "--control".as_ref(), control.as_os_str()];
    atomdir_in(&root, &scratch.join("other"), init)
        .expect(NOT_PERMITTED)
        .says(&["elsewhere' can be written by others"]);
}

#[test]
fn only_the_callers_own_configuration_makes_a_store_trusted() {
    let scratch = Scratch::new("listed");
    let (root, stranger) = (User::root(scratch.path()), User::stranger(scratch.path()));
    fs::create_dir(scratch.join("site")).expect("made");
    let site = scratch.join("site");
    give(&site, &stranger);
    let _store = Store::init(&site, &stranger);
    let list = || atomdir_in(&root, &site, ["service", "status"]);
    list()
        .expect(NOT_PERMITTED)
        .says(&["site' belongs to user games"]);
    let directory = root.home().join(".config/atomdir");
    fs::create_dir_all(&directory).expect("made");
    let file = directory.join("config");
    fs::write(&file, format!("# mine\ntrust {}\n", site.display())).expect("written");
    // The store is trusted; no service runs.
    list().expect(0);
    give(&file, &stranger);
    list().expect(NOT_PERMITTED);
    give(&file, &root);
    shell(&directory, "chmod 666 config");
    list().expect(NOT_PERMITTED);
    shell(&directory, "chmod 644 config; chmod 777 .");
    list().expect(NOT_PERMITTED);
    shell(&directory, "chmod 755 .");
    list().expect(0);
    // As with `sudo -E`: HOME is the stranger's.
    give(root.home(), &stranger);
    give(&root.home().join(".config"), &stranger);
    list().expect(NOT_PERMITTED);
    give(root.home(), &root);
    give(&root.home().join(".config"), &root);
    fs::write(&file, "trust /elsewhere\n").expect("written");
    list().expect(NOT_PERMITTED);
    // With root's consent for this once, the service starts, as the stranger.
    let status = ["service", "start", "--trust"];
    atomdir_in(&root, &site, status).expect(0);
    let shown = atomdir_in(&root, &site, ["service", "status", "--trust"])
        .expect(0)
        .text();
    assert!(shown.contains(&format!("({})", stranger.uid)), "{shown}");
    atomdir_in(&root, &site, ["service", "stop", "--abort", "--trust"]).expect(0);
}

fn init_at(user: &User, directory: &Path) -> Outcome {
    atomdir_in(user, directory, ["init"])
}

/// With an access list, the permission bits of the group show the list's mask, and look
/// like those of a private group.
#[test]
fn acl_writers_above_a_store_make_it_untrusted() {
    if !tools_present("access-lists", &["setfacl"]) {
        return;
    }
    // These users have a private group; of others the bits alone are refused.
    for owner in [User::root, User::stranger] {
        let scratch = Scratch::new("access-lists");
        let owner = owner(scratch.path());
        shell(scratch.path(), "mkdir -p above/site");
        let (above, site) = (scratch.join("above"), scratch.join("above/site"));
        give(&above, &owner);
        give(&site, &owner);
        let allow = |entry: &str| {
            shell(
                scratch.path(),
                &format!("setfacl -b above; setfacl -m {entry} above"),
            );
        };
        for entry in ["u:4711:rwx", "g:4711:rwx"] {
            allow(entry);
            init_at(&owner, &site)
                .expect(NOT_PERMITTED)
                .says(&["above' can be written by others"]);
        }
        // Root could write anyway, and a mask may remove what an entry grants.
        for entry in ["u:0:rwx", "u:4711:r-x", "u:4711:rwx,m::r-x"] {
            allow(entry);
            init_at(&owner, &site).expect(0);
        }
        let store = Store::existing(&site, &owner);
        allow("u:4711:rwx");
        touch(&owner, &site).expect(NOT_PERMITTED);
        shell(
            scratch.path(),
            "setfacl -b above; setfacl -m u:4711:rwx above/site/.atomdir",
        );
        touch(&owner, &site)
            .expect(NOT_PERMITTED)
            .says(&[".atomdir' can be written by others"]);
        shell(scratch.path(), "setfacl -b above/site/.atomdir");
        touch(&owner, &site).expect(0);
        store.assert_at_rest();
    }
}

/// The database of groups does not list the users whose primary group it is.
#[test]
fn primary_group_of_another_user_is_not_private() {
    let scratch = Scratch::new("primary-group");
    let stranger = User::stranger(scratch.path());
    shell(scratch.path(), "mkdir -p above/site; chmod 775 above");
    let site = scratch.join("above/site");
    give(&scratch.join("above"), &stranger);
    give(&site, &stranger);
    let users = format!("friend:x:4711:{}::/:/bin/sh\n", stranger.gid);
    let users = fs::read_to_string("/etc/passwd").expect("read") + &users;
    fs::write(scratch.join("passwd"), users).expect("written");
    let script = format!(
        "mount --bind '{}' /etc/passwd; exec setpriv --reuid {} --regid {} --clear-groups '{}' init",
        scratch.join("passwd").display(),
        stranger.uid,
        stranger.gid,
        binary().display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-ec", &script])
        .current_dir(&site);
    capture_output(&mut command)
        .expect(NOT_PERMITTED)
        .says(&["above' can be written by others"]);
    init_at(&stranger, &site).expect(0);
}
