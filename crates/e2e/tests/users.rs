//! Ordinary users on stores of their own, and strangers on a store of root. A transaction
//! can do nothing that its user could not do outside.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::{CONFIGURATION, CONFLICT, NO_SUCH, NOT_PERMITTED, USAGE};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, Random, Scenario, User, capture_output, look, pick, tools_present,
    users_can_mount,
};

const USUAL: &str = r#"
mkdir -p dir/sub; echo new > dir/sub/file; echo more >> old; mv gone kept; chmod 700 dir
ln old hard; ln -s old soft; mkfifo fifo; setfattr -n user.k -v v old; touch -d '2001-02-03' dir/sub/file
umask 077; echo private > private; rm -r tree/a; mv tree/b b; sed -i s/x/y/ words; truncate -s 1M large
mkdir -p tmp; echo '#!/bin/sh
echo executed' > tmp/program; chmod +x tmp/program; tmp/program
pwd; id -u; id -g
"#;
const USUAL_TREE: &str =
    "echo old > old; echo gone > gone; mkdir -p tree/a/b tree/b; echo x > tree/b/x; echo x > words";

#[test]
fn usual_programs_work_in_an_ordinary_users_store() {
    let test = "usual_programs_work_in_an_ordinary_users_store";
    if users_can_mount(test) && tools_present(test, &["setfattr"]) {
        Scenario::shell("ordinary", USUAL)
            .prepare(USUAL_TREE)
            .same_output()
            .as_ordinary_user()
            .check();
    }
}

#[test]
fn an_ordinary_user_begins_executes_and_commits() {
    if !users_can_mount("an_ordinary_user_begins_executes_and_commits") {
        return;
    }
    let fixture = Fixture::owned_by("user-begin", User::ordinary, "echo old > file");
    let store = &fixture.store;
    let view = store.begin();
    store
        .exec(&view, "test $(cat file) = old; echo new > file")
        .expect(0);
    assert_eq!(
        fs::read_to_string(fixture.base.join("file")).expect("read"),
        "old\n"
    );
    // Root has rights over the store's service, and a stranger has none.
    let stranger = User::stranger(fixture.scratch.path());
    store
        .call_as(&stranger, ["commit", &view.id])
        .expect(NOT_PERMITTED);
    store
        .call_as(&stranger, ["abort", &view.id])
        .expect(NOT_PERMITTED);
    store
        .call_as(&User::root(fixture.scratch.path()), ["list", "--trust"])
        .expect(0);
    store.commit(&view).expect(0);
    assert_eq!(
        fs::read_to_string(fixture.base.join("file")).expect("read"),
        "new\n"
    );
    store.assert_at_rest();
}

/// Runs the command where its user can make no user namespace. The kernel refuses it to
/// everybody in a chroot, and hardened systems refuse it everywhere.
fn without_user_namespaces(fixture: &Fixture, arguments: &[&str]) -> Outcome {
    let user = fixture.store.user();
    let root = fixture.scratch.join("root");
    fs::create_dir_all(&root).expect("made");
    let inner = fixture.store.command(arguments);
    let mut command = Command::new("unshare");
    User::root(fixture.scratch.path()).dress(&mut command);
    command.args(["-m", "sh", "-ec"]).arg(
        "root=$1 home=$2; shift 2
         mount --rbind / \"$root\"
         exec chroot --userspec=65534:65534 --groups= \"$root\" \
             env HOME=\"$home\" XDG_RUNTIME_DIR=\"$home/run\" \"$@\"",
    );
    command
        .arg("sh")
        .arg(&root)
        .arg(user.home())
        .arg(inner.get_program())
        .args(inner.get_args());
    capture_output(&mut command)
}

#[test]
fn without_user_namespaces_a_run_is_refused_unless_allowed_in_the_view_itself() {
    let test = "without_user_namespaces_a_run_is_refused_unless_allowed_in_the_view_itself";
    if !users_can_mount(test) {
        return;
    }
    let prepare = "mkdir dir; echo old > dir/file";
    let fixture = Fixture::owned_by("no-userns", User::ordinary, prepare);
    let script = "pwd; echo new > dir/file";
    let run = ["run", "--view", "native", "--", "sh", "-ec", script];
    let refused = without_user_namespaces(&fixture, &run).expect(CONFIGURATION);
    assert!(refused.error_text().contains("namespace"), "{refused}");
    // The service's mount was in the mount namespace that has ended.
    fixture.store.kill_service();
    let run = ["run", "--view", "auto", "--", "sh", "-ec", script];
    let refused = without_user_namespaces(&fixture, &run).expect(CONFIGURATION);
    assert!(refused.error_text().contains("namespace"), "{refused}");
    assert_eq!(refused.text(), "", "it was not started");
    fixture.store.kill_service();
    // A seal needs more than the view, so the command fails rather than run without it.
    let run = [
        "run",
        "--dry-run",
        "--allow-unbound",
        "--",
        "sh",
        "-ec",
        script,
    ];
    let refused = without_user_namespaces(&fixture, &run).expect(CONFIGURATION);
    assert_eq!(refused.text(), "", "it was not started");
    fixture.store.kill_service();
    let run = ["run", "--allow-unbound", "--", "sh", "-ec", script];
    let outcome = without_user_namespaces(&fixture, &run).expect(0);
    assert_ne!(
        outcome.text().trim(),
        fixture.base.to_string_lossy(),
        "the command must run under the view's own path"
    );
    assert!(outcome.error_text().contains("namespace"), "{outcome}");
    assert_eq!(
        fs::read_to_string(fixture.base.join("dir/file")).expect("read"),
        "new\n"
    );
    fixture.store.kill_service();
}

/// What a stranger may try in a tree of root. Every line is an attempt, and prints whether it
/// succeeded. Owners are not printed, since no other user exists in the stranger's user namespace.
const ATTACKS: &str = r#"
try() { if out=$("$@" 2> err); then echo "ok: $* = $out"; else echo "no: $*: $(tail -n 1 err | sed -e 's/.*\(Errno [0-9]*\).*/\1/' -e 's/.*: //')"; fi; rm -f err; }
cd public
try cat ../private
try cat ../hidden/inside
try ls ../hidden
try sh -c 'echo x > ../created'
try sh -c 'echo x >> ../readable'
try sh -c ': > ../readable'
try mkdir ../created
try rm ../readable
try mv ../readable .
try mv roots-own renamed
try rm sticky/roots-own
try mv sticky/roots-own mine
try ln ../private linked
try ln renamed linked
try ln ../writable linked-writable
try chmod 777 ../readable
try chmod 4755 ../writable
try chown 5 ../writable
try chgrp 60 ../writable
try touch -d 2001-01-01 ../writable
try touch ../writable
try touch ../readable
try truncate -s 0 ../writable
try sh -c 'echo x >> ../set-id'
try stat -c %a ../set-id
try setfattr -n user.k -v v ../readable
try setfattr -n user.k -v v ../writable
try setfattr -n trusted.k -v v own
try setfacl -m u:5:rwx ../readable
try sh -c 'cp /bin/true own && chmod 4755 own && stat -c %a own'
try chown 0 own
try chgrp 0 own
try chmod 2755 own
try stat -c %a own
try setcap cap_sys_admin+ep own
try mknod device c 1 3
try mknod disk b 7 0
try mkfifo fifo
try ln -s ../private symlink
try cat symlink
try ln -s /etc/shadow shadow
try cat shadow
try sh -c 'echo x > shadow'
try sh -c 'echo x > ../group-set/made'
try sh -c 'mkdir ../group-set/dir && stat -c %a ../group-set/dir'
try sh -c 'echo x > ../group-set/own && chmod 2755 ../group-set/own && stat -c %a ../group-set/own'
try sh -c 'echo x > ../inherits/made'
try cat ../granted
try sh -c 'echo x >> ../granted'
try sh -c 'umask 077; echo x > masked; stat -c %a masked'
try mv ../hidden stolen
try mv ../empty stolen
try rmdir ../empty
try chroot .
try fallocate -l 100000 ../readable
try python3 -c 'import os; os.open("../private", os.O_PATH)'
try python3 -c 'import os; os.open("../readable", os.O_RDWR)'
try python3 -c 'import os; os.link("../private", "hard")'
try python3 -c 'import os; os.rename("own", "../own")'
try python3 -c 'import os; os.removexattr("../labelled", "user.k")'
try python3 -c 'import os; os.getxattr("../private", "user.k")'
"#;

const ATTACKED: &str = r#"
echo secret > private; chmod 600 private; setfattr -n user.k -v v private
mkdir hidden; echo secret > hidden/inside; chmod 700 hidden
echo readable > readable; echo writable > writable; chmod 666 writable
echo labelled > labelled; setfattr -n user.k -v v labelled
cp /bin/true set-id; chmod 6777 set-id
mkdir -p public/sticky empty group-set inherits; chmod 777 public group-set inherits; chmod 1777 public/sticky
echo root > public/roots-own; echo root > public/sticky/roots-own
chgrp 100 group-set; chmod g+s group-set
setfacl -d -m u:5:rw,g:100:r inherits
echo granted > granted; chmod 600 granted; setfacl -m u:5:r granted
"#;

#[test]
fn a_stranger_can_do_in_a_transaction_what_they_can_outside() {
    let test = "a_stranger_can_do_in_a_transaction_what_they_can_outside";
    if !tools_present(test, &["setfattr", "setfacl", "setcap", "python3"]) {
        return;
    }
    let plain = Fixture::new("attack-plain", ATTACKED);
    let stranger = User::stranger(plain.scratch.path());
    let mut command = Command::new("sh");
    stranger.dress(&mut command);
    let outside = capture_output(command.args(["-c", ATTACKS]).current_dir(&plain.base));
    assert!(
        outside.text().contains("no: cat ../private"),
        "the attacks run\n{outside}"
    );

    let fixture = Fixture::new("attack", ATTACKED);
    let store = &fixture.store;
    store.call(["config", "allow", "games"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let inside = store.call_as(&stranger, ["run", "--", "sh", "-c", ATTACKS]);
    let (plainly, in_view) = (outside.text(), inside.text());
    // Giving something to a user whom the namespace does not know fails with another error:
    // it is not refused, but invalid.
    let in_view = in_view.replace(
        "chown 0 own: Invalid argument",
        "chown 0 own: Operation not permitted",
    );
    let in_view = in_view.replace(
        "chgrp 0 own: Invalid argument",
        "chgrp 0 own: Operation not permitted",
    );
    for (plainly, in_view) in plainly.lines().zip(in_view.lines()) {
        assert_eq!(plainly, in_view);
    }
    assert_eq!(
        plainly.len(),
        in_view.len(),
        "one output is longer\n{inside}"
    );
    assert_eq!(outside.code, inside.code, "\n{inside}");
    store.assert_at_rest();
    let what = "a stranger's deeds plainly (left) and in a transaction (right)";
    assert_equal(
        what,
        &look(&plain.base),
        &fixture.look(),
        &CompareOptions::alike(),
    );
}

#[test]
fn a_stranger_cannot_use_anothers_transaction() {
    let fixture = Fixture::new(
        "stranger",
        "echo secret > private; chmod 600 private; mkdir -m 777 drop",
    );
    let store = &fixture.store;
    store.call(["config", "allow", "games"]).expect(0);
    let stranger = User::stranger(fixture.scratch.path());
    let as_stranger = |arguments: &[&str]| store.call_as(&stranger, arguments);
    as_stranger(&["begin"])
        .expect(NOT_PERMITTED)
        .says(&["service"]);

    let view = store.begin();
    store.exec(&view, "echo mine > drop/mine").expect(0);
    // Not permitted, or not even known to exist.
    let refused = [NOT_PERMITTED, NO_SUCH];
    for verb in ["commit", "abort", "status", "diff"] {
        as_stranger(&[verb, &view.id]).expect_one_of(&refused);
    }
    as_stranger(&["exec", &view.id, "--", "true"]).expect_one_of(&refused);
    as_stranger(&["shell", &view.id]).expect_one_of(&refused);
    as_stranger(&["abort", "--all"]);
    as_stranger(&["service", "stop"]).expect(NOT_PERMITTED);
    let listed = as_stranger(&["list"]).expect(0).text();
    assert!(
        !listed.lines().any(|line| line.contains(&view.id)),
        "{listed}"
    );
    for id in ["0", "999999", "18446744073709551615"] {
        as_stranger(&["commit", id]).expect(NO_SUCH);
    }
    for id in ["-1", "../1", "18446744073709551616", "", "1x"] {
        let outcome = as_stranger(&["commit", "--", id]);
        outcome.expect_one_of(&[USAGE, NO_SUCH]);
    }
    assert_hidden(&stranger, &view.path);
    let inside = as_user(&stranger, "ls -l /proc/self/cwd/.atomdir", &fixture.base);
    assert_ne!(
        inside.code, 0,
        "the control directory cannot be listed\n{inside}"
    );
    store.exec(&view, "test $(cat drop/mine) = mine").expect(0);
    store.commit(&view).expect(0);

    // What a stranger's own transaction makes belongs to them, in the base as well.
    as_stranger(&["run", "--", "sh", "-ec", "echo theirs > drop/theirs"]).expect(0);
    let tree = fixture.look();
    assert_eq!(tree.entries[Path::new("drop/theirs")].user, stranger.uid);
    assert_eq!(tree.entries[Path::new("drop/mine")].user, 0);
    store.assert_at_rest();
}

fn as_user(user: &User, script: &str, directory: &Path) -> Outcome {
    let mut command = Command::new("sh");
    user.dress(&mut command);
    capture_output(command.args(["-c", script]).current_dir(directory))
}

/// The stranger can open neither the view nor any directory that leads to it.
fn assert_hidden(stranger: &User, view: &Path) {
    let list = |path: &Path| {
        as_user(
            stranger,
            &format!("ls '{}'", path.display()),
            Path::new("/"),
        )
    };
    assert_ne!(list(view).code, 0);
    let wrapper = view.parent().expect("a view has a place");
    assert_ne!(list(wrapper).code, 0, "{}", wrapper.display());
}

/// The service has root's rights. A directory that is replaced by a symlink between the
/// write and the commit must not lead it out of the store.
#[test]
fn a_symlink_does_not_lead_the_service_out_of_the_store() {
    let fixture = Fixture::new(
        "led-out",
        "mkdir -m 777 drop; mkdir -m 777 drop/dir; echo old > drop/dir/file; chmod 666 drop/dir/file",
    );
    let secret = fixture.scratch.join("secret");
    fs::create_dir(&secret).expect("made");
    fs::write(secret.join("file"), "untouchable\n").expect("written");
    let before = look(&secret);
    let store = &fixture.store;
    store.call(["config", "allow", "games"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let stranger = User::stranger(fixture.scratch.path());
    let begun = store.call_as(&stranger, ["begin"]).expect(0).text();
    let id = begun.lines().next().expect("an id").to_owned();
    let script = "echo in > drop/dir/file; echo in > drop/dir/new";
    store
        .call_as(&stranger, ["exec", &id, "--", "sh", "-ec", script])
        .expect(0);
    let swap = format!(
        "mv drop/dir drop/away; ln -s '{}' drop/dir",
        secret.display()
    );
    as_user(&stranger, &swap, &fixture.base).expect(0);
    store.call_as(&stranger, ["commit", &id]).expect(CONFLICT);
    store.call_as(&stranger, ["abort", &id]).expect(0);
    assert_equal(
        "outside the store, before and after",
        &before,
        &look(&secret),
        &CompareOptions::untouched(),
    );
    // A symlink that is part of the transaction is written as itself.
    let script = format!(
        "ln -s '{0}' drop/out; ln -s ../../secret/file drop/far",
        secret.display()
    );
    store
        .call_as(&stranger, ["run", "--", "sh", "-ec", &script])
        .expect(0);
    store
        .run("rm -r drop/out drop/far; mv drop/away drop/out")
        .expect(0);
    assert_equal(
        "outside the store, before and after",
        &before,
        &look(&secret),
        &CompareOptions::untouched(),
    );
    store.assert_at_rest();
}

/// A peer sends garbage, huge lengths, half a message, or nothing. It gets an error or is
/// dropped, and others do not notice.
#[test]
fn service_survives_garbage_on_the_socket() {
    let mut random = Random::for_test("service_survives_garbage_on_the_socket");
    let fixture = Fixture::new("garbage", "echo old > file");
    let store = &fixture.store;
    let view = store.begin();
    let before = fixture.look();
    let socket = store.control().join("socket");
    let connect =
        || UnixStream::connect(&socket).unwrap_or_else(|error| panic!("cannot connect: {error}"));
    let mut silent = Vec::new();
    for round in 0..pick(100, 2000) {
        let mut peer = connect();
        let mut bytes: Vec<u8> = (0..random.below(2000))
            .map(|_| random.number() as u8)
            .collect();
        match round % 4 {
            // The largest length or a random one, which nothing follows.
            0 => bytes = u32::MAX.to_le_bytes().to_vec(),
            1 => bytes = (random.below(70_000) as u32).to_le_bytes().to_vec(),
            2 => bytes
                .splice(0..0, (bytes.len() as u32).to_le_bytes())
                .for_each(drop),
            _ => {}
        }
        // The service may close the connection first.
        let _ = peer.write_all(&bytes);
        if silent.len() < 50 && random.chance(4) {
            silent.push(peer);
        } else {
            let _ = peer.shutdown(std::net::Shutdown::Write);
            let _ = peer.read_to_end(&mut Vec::new());
        }
        if round % 25 == 0 {
            store.exec(&view, "echo new > file").expect(0);
        }
    }
    assert_eq!(store.service_processes().len(), 1, "the service is alive");
    assert_equal(
        "base before and after",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    store.commit(&view).expect(0);
    drop(silent);
    store.assert_at_rest();
}
