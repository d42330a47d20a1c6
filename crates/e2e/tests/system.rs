//! The whole system in one transaction: packages that dpkg installs in a small system of the test's own,
//! whose directories are stores.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::tree::{CompareOptions, Times, Tree, assert_equal};
use atomdir_testing::{
    Outcome, Scratch, Store, User, atomdir, capture_output, look, shell, system_command,
    tools_present, unmount, wait_until,
};

/// A root directory with a dpkg database, and packages `thing` of several versions. Package 3 fails when
/// it is configured, and any waits there if `THING_WAITS` names a file that it makes then.
const MAKE: &str = r#"
mkdir -p root/usr/bin root/usr/sbin root/usr/lib root/etc root/opt root/boot root/var/lib/dpkg root/home
ln -s usr/bin root/bin
touch root/var/lib/dpkg/status root/var/lib/dpkg/available root/boot/kernel
for version in 1 2 3; do
    d=thing-$version
    mkdir -p $d/DEBIAN $d/usr/bin $d/usr/share/thing $d/usr/sbin $d/etc $d/opt/thing
    cat /bin/sleep > $d/usr/bin/thing; echo $version >> $d/usr/bin/thing
    chmod 4755 $d/usr/bin/thing
    for file in old same $version; do echo $version > $d/usr/share/thing/$file; done
    echo same > $d/usr/share/thing/same
    ln $d/usr/share/thing/old $d/usr/share/thing/linked
    ln -s thing-$version $d/usr/share/thing/symbolic
    echo $version > $d/opt/thing/data; chown -R 1:1 $d/opt/thing; chmod 2750 $d/opt/thing
    echo "setting = $version" > $d/etc/thing.conf
    test $version = 1 || rm $d/usr/share/thing/old $d/usr/share/thing/linked
    echo /etc/thing.conf > $d/DEBIAN/conffiles
    cat > $d/DEBIAN/control <<END
Package: thing
Version: $version
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: changes all directories of a system
END
    cat > $d/DEBIAN/postinst <<END
#!/bin/sh
set -e
mkdir -p \$DPKG_ROOT/var/lib/thing
echo $version > \$DPKG_ROOT/var/lib/thing/state-$version
policy=\$DPKG_ROOT/usr/sbin/policy-rc.d
test ! -x \$policy || \$policy thing restart || test \$? = 101
if test -n "\$THING_WAITS"; then echo \$\$ > "\$THING_WAITS"; exec sleep 1000; fi
test $version != 3
END
    chmod 755 $d/DEBIAN/postinst
    dpkg-deb --build $d > made
done
"#;

struct System {
    /// Dropped before the files, so that no service is left.
    stores: Vec<Store>,
    root: PathBuf,
    scratch: Scratch,
}

impl System {
    /// `None`: the test is skipped.
    fn new(test: &str) -> Option<System> {
        if !tools_present(test, &["dpkg", "dpkg-deb"]) {
            return None;
        }
        let scratch = Scratch::new(test);
        shell(scratch.path(), MAKE);
        let root = fs::canonicalize(scratch.join("root")).expect("it was made");
        let mut system = System {
            stores: Vec::new(),
            root,
            scratch,
        };
        system.dpkg(&[], 1).expect(0);
        system.atomdir(&["init"], &[]).expect(0);
        let user = system.user();
        for name in ["usr", "var", "etc", "opt", "boot"] {
            let store = Store::existing(&system.root.join(name), &user);
            assert!(store.control().is_dir(), "{name} is a store");
            system.stores.push(store);
        }
        Some(system)
    }

    fn user(&self) -> User {
        User::root(self.scratch.path())
    }

    fn atomdir(&self, verb: &[&str], words: &[&str]) -> Outcome {
        capture_output(&mut self.command(verb, words))
    }

    fn command(&self, verb: &[&str], words: &[&str]) -> Command {
        system_command(&self.user(), &self.root, verb, words)
    }

    fn dpkg_words(&self, version: u32) -> Vec<String> {
        let root = self.root.display();
        let package = self.scratch.join(format!("thing-{version}.deb"));
        let words = [
            "dpkg".to_owned(),
            format!("--instdir={root}"),
            format!("--admindir={root}/var/lib/dpkg"),
            "--force-script-chrootless,confnew,unsafe-io".to_owned(),
            "--install".to_owned(),
            package.display().to_string(),
        ];
        words.into()
    }

    /// Installs a package, with these words before dpkg's.
    fn dpkg(&self, before: &[&str], version: u32) -> Outcome {
        let words = self.dpkg_words(version);
        let words = before.iter().map(|word| (*word).to_owned()).chain(words);
        let words: Vec<String> = words.collect();
        capture_output(Command::new(&words[0]).args(&words[1..]))
    }

    fn install(&self, options: &[&str], version: u32) -> Outcome {
        capture_output(&mut self.installing(options, version))
    }

    fn installing(&self, options: &[&str], version: u32) -> Command {
        let words = self.dpkg_words(version);
        let mut all = options.to_vec();
        all.push("--");
        all.extend(words.iter().map(String::as_str));
        self.command(&["run"], &all)
    }

    /// What dpkg's database says, checked against the files.
    fn version(&self) -> String {
        let root = self.root.display();
        let script = format!(
            "dpkg --root={root} --verify; dpkg --root={root} --audit
             dpkg-query --admindir={root}/var/lib/dpkg -W -f '${{Status}} ${{Version}}' thing"
        );
        shell(Path::new("/"), &script).text()
    }

    /// All stores, without the files that dpkg locks: these are shared with programs outside.
    fn look(&self) -> Vec<Tree> {
        let trees = self.stores.iter().map(|store| {
            let mut tree = look(store.path());
            tree.entries.retain(|path, _| {
                let name = path.file_name().unwrap_or_default();
                !name.to_string_lossy().to_lowercase().starts_with("lock")
            });
            tree
        });
        trees.collect()
    }

    /// Nothing has changed.
    fn assert_untouched(&self, what: &str, before: &[Tree]) {
        self.assert_equal(what, before, &CompareOptions::untouched());
    }

    /// Everything is as it was, but for directories' times.
    fn assert_as(&self, what: &str, before: &[Tree]) {
        let options = CompareOptions {
            directory_times: Times::Ignored,
            ..CompareOptions::copied()
        };
        self.assert_equal(what, before, &options);
    }

    fn assert_equal(&self, what: &str, before: &[Tree], options: &CompareOptions) {
        for ((store, before), now) in self.stores.iter().zip(before).zip(self.look()) {
            let what = format!("{what}: {}", store.path().display());
            assert_equal(&what, before, &now, options);
        }
    }

    /// Starts the run of a command that waits, and returns the process that it waits in.
    fn start_waiting(&self, version: u32) -> (Child, u32) {
        let sign = self.scratch.join("waits");
        let _ = fs::remove_file(&sign);
        let mut command = self.installing(&[], version);
        command.env("THING_WAITS", &sign);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("it starts");
        let process = || fs::read_to_string(&sign).unwrap_or_default();
        wait_until("the package is configured", || process().ends_with('\n'));
        let process = process().trim().parse().expect("a process");
        (child, process)
    }

    fn assert_nothing_open(&self) {
        for store in &self.stores {
            wait_until("all transactions have ended", || {
                let listed = store.call(["--json", "list"]).expect(0).text();
                listed.contains("\"transactions\":[]")
            });
        }
    }

    fn id_of_newest(&self) -> String {
        let log = self.atomdir(&["log"], &["--oneline"]).expect(0).text();
        log.split_whitespace().next().expect("a commit").to_owned()
    }
}

/// It may have ended with its view.
fn kill(process: u32) {
    shell(Path::new("/"), &format!("kill -KILL {process} || true"));
}

/// A program that is ended with the test.
struct Running(Child);

impl Running {
    fn start(program: &Path) -> Running {
        let mut command = Command::new(program);
        command
            .arg("1000")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Running(command.spawn().expect("it is a copy of sleep"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const INSTALLED: &str = "install ok installed";

#[test]
fn an_upgrade_lands_whole_and_is_undone_whole() {
    let Some(system) = System::new("system-upgrade") else {
        return;
    };
    let before = system.look();
    assert_eq!(system.version(), format!("{INSTALLED} 1"));
    let shown = system.install(&["--dry-run"], 2).expect(0).text();
    for path in ["share/thing/2", "thing.conf", "lib/thing/state-2"] {
        assert!(shown.contains(path), "{shown}");
    }
    system.assert_untouched("a dry run", &before);
    // A program that runs the old file.
    let running = Running::start(&system.root.join("usr/bin/thing"));
    let outcome = system.install(&[], 2).expect(0);
    let process = format!("{} (thing)", running.0.id());
    outcome.says(&["the packages want: restart thing", &process]);
    assert_eq!(system.version(), format!("{INSTALLED} 2"));
    let after = system.look();
    let id = system.id_of_newest();
    let undone = system.atomdir(&["undo"], &[]).expect(0);
    undone.says(&[&format!("takes back {id}: dpkg")]);
    system.assert_as("undone", &before);
    assert_eq!(system.version(), format!("{INSTALLED} 1"));
    drop(running);
    let log = system.atomdir(&["log"], &[]).expect(0).text();
    assert!(log.contains("[undone] dpkg"), "{log}");
    system.atomdir(&["undo"], &["last"]).expect(0);
    system.assert_as("the undo is undone", &after);
    let now = system.look();
    system.atomdir(&["undo"], &["--dry-run", &id]).expect(0);
    system.assert_untouched("a dry run", &now);
    for wrong in ["1", "ffffffff", "last~9"] {
        assert_ne!(system.atomdir(&["undo"], &[wrong]).code, 0, "{wrong}");
    }
    system.stores[0].call(["undo", &id]).expect(USAGE);
    // Its mark is what the commits are found by.
    system.stores[0].call(["relabel", "1", "renamed"]).expect(0);
    system.atomdir(&["undo"], &[&id]).expect(0);
    system.assert_as("undone again", &before);
    for store in &system.stores {
        store.assert_at_rest();
    }
}

#[test]
fn what_fails_or_is_killed_leaves_no_trace() {
    let Some(system) = System::new("system-fails") else {
        return;
    };
    let before = system.look();
    assert_ne!(system.install(&[], 3).code, 0);
    system.assert_untouched("it failed", &before);
    // Nobody else installs anything meanwhile.
    let (mut run, waiting) = system.start_waiting(2);
    let busy = system.install(&[], 2).expect(CONFLICT);
    busy.says(&["installs packages", "try again"]);
    assert_ne!(system.dpkg(&[], 2).code, 0);
    let before = system.look();
    // The command's own program is killed, then the service of each store.
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    kill(waiting);
    system.assert_nothing_open();
    system.assert_untouched("the run was killed", &before);
    for store in &system.stores[..3] {
        let (mut run, waiting) = system.start_waiting(2);
        assert!(store.kill_service());
        kill(waiting);
        assert!(!run.wait().expect("it ends").success());
        system.assert_nothing_open();
        system.assert_untouched("a service was killed", &before);
    }
    assert_eq!(system.version(), format!("{INSTALLED} 1"));
    system.install(&[], 2).expect(0);
    assert_eq!(system.version(), format!("{INSTALLED} 2"));
    let no_policy = fs::read_dir(system.root.join("usr/sbin")).expect("a directory");
    assert_eq!(no_policy.count(), 0);
    for store in &system.stores {
        store.assert_at_rest();
    }
}

#[test]
fn a_later_change_in_one_store_keeps_all_from_being_undone() {
    let Some(system) = System::new("system-later") else {
        return;
    };
    system.install(&[], 2).expect(0);
    fs::write(system.root.join("etc/thing.conf"), "setting = mine\n").expect("written");
    let before = system.look();
    let refused = system.atomdir(&["undo"], &[]).expect(CONFLICT);
    refused.says(&["thing.conf", "etc"]);
    system.assert_untouched("refused", &before);
    system.assert_nothing_open();
    system.atomdir(&["undo"], &["--take-theirs"]).expect(0);
    assert_eq!(
        system.version().lines().last(),
        Some("install ok installed 1")
    );
    let setting = fs::read(system.root.join("etc/thing.conf")).expect("read");
    assert_eq!(setting, b"setting = mine\n");
}

#[test]
fn what_is_mounted_in_a_store_is_as_outside() {
    let Some(system) = System::new("system-mounts") else {
        return;
    };
    let root = &system.root;
    shell(
        root,
        "mkdir -p var/mounted; touch etc/resolv.conf; echo outside > home/resolv
         mount -t tmpfs none var/mounted; mkdir var/mounted/within
         mount -t tmpfs none var/mounted/within; touch var/mounted/within/there
         mount --bind home/resolv etc/resolv.conf",
    );
    let script = format!(
        "cd {}; pwd; cat etc/resolv.conf; ls var/mounted/within; touch var/mounted/new etc/new",
        root.display()
    );
    let outcome = system.atomdir(&["run"], &["--", "sh", "-ec", &script]);
    let is_there = root.join("var/mounted/new").exists();
    for point in ["etc/resolv.conf", "var/mounted/within", "var/mounted"] {
        unmount(&root.join(point));
    }
    let expected = format!("{}\noutside\nthere\n", root.display());
    assert_eq!(outcome.expect(0).text(), expected);
    assert!(is_there && root.join("etc/new").exists());
    system.atomdir(&["recover"], &[]).expect(0);
    system.atomdir(&["deinit"], &[]).expect(0);
    let is_store = |store: &Store| store.control().exists();
    assert!(!system.stores.iter().any(is_store));
}

#[test]
fn no_directory_of_the_system_is_left_out_unnoticed() {
    let Some(system) = System::new("system-left-out") else {
        return;
    };
    let root = system.root.display();
    // It may be one that can hold no store. Then no command changes it.
    let boot = root.to_string() + "/boot";
    atomdir(&system.scratch, ["deinit", &boot]).expect(0);
    let script = format!("touch {root}/usr/new; ! touch {boot}/new");
    system
        .atomdir(&["run"], &["--", "sh", "-ec", &script])
        .expect(0);
    assert!(!system.root.join("boot/new").exists());
    atomdir(&system.scratch, ["deinit", &format!("{root}/etc")]).expect(0);
    assert_ne!(system.atomdir(&["run"], &["--", "true"]).code, 0);
    let none = system.scratch.join("none");
    fs::create_dir(&none).expect("the name is free");
    let none = none.display().to_string();
    atomdir(&system.scratch, ["init", "--system", "--root", &none]).expect(USAGE);
}
