//! A real Debian in one transaction: a system that debootstrap has made is upgraded, killed at any moment, and
//! taken back. Its packages are kept in the cache, so that only the first run fetches them.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, Times, Tree, assert_equal, compare};
use atomdir_testing::{
    LoopDevice, Outcome, Random, Scratch, Store, User, capture_output, look, only_in_full_tier,
    shell, skip, system_command, tools_present, unmount, wait_until,
};

/// Makes the archive `$1` of a system, with the packages of an upgrade and of a server.
const MAKE: &str = r#"
debootstrap --variant=minbase bookworm root http://deb.debian.org/debian
echo "deb http://deb.debian.org/debian-security bookworm-security main" >> root/etc/apt/sources.list
cp -L /etc/resolv.conf root/etc/resolv.conf
chroot root apt-get -q update
chroot root apt-get -q -y -d dist-upgrade
chroot root apt-get -q -y -d --no-install-recommends install nginx-light iputils-ping adduser sudo
chroot root apt-get -q -y -d --reinstall install bash coreutils libc6 tar
tar -C root -cf "$1.new" . && mv "$1.new" "$1"
"#;

/// Upgrades, installs programs with capabilities, set-user-id bits and users of their own, and replaces
/// what the shell and dpkg run from.
const UPGRADE: &str = "
export DEBIAN_FRONTEND=noninteractive
apt-get -q -y dist-upgrade
apt-get -q -y --no-install-recommends install nginx-light iputils-ping adduser sudo
apt-get -q -y --reinstall install bash coreutils libc6 tar
touch /tmp/upgraded
";

/// Each upgrade changes the first three.
const STORES: [&str; 5] = ["usr", "var", "etc", "opt", "boot"];

fn archive(test: &str) -> Option<PathBuf> {
    let tools = [
        "debootstrap",
        "dpkg",
        "chroot",
        "tar",
        "mkfs.ext4",
        "losetup",
    ];
    if !tools_present(test, &tools) {
        return None;
    }
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let archive = cache.join("atomdir/debian-system.tar");
    if !archive.exists() {
        fs::create_dir_all(archive.parent()?).expect("the cache can be made");
        let scratch = Scratch::new(test);
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", MAKE, "sh"]).arg(&archive);
        let made = capture_output(command.current_dir(scratch.path()));
        if made.code != 0 {
            skip(
                test,
                &format!("debootstrap could not make a system: {made}"),
            );
            return None;
        }
    }
    Some(archive)
}

/// A Debian on an ext4 of its own. The fields are dropped in this order.
struct Debian {
    stores: Vec<Store>,
    mounts: Mounts,
    root: PathBuf,
    _device: LoopDevice,
    scratch: Scratch,
}

struct Mounts(Vec<PathBuf>);

impl Drop for Mounts {
    fn drop(&mut self) {
        self.0.iter().for_each(|point| unmount(point));
    }
}

impl Debian {
    fn new(test: &str) -> Option<Debian> {
        let archive = archive(test)?;
        let scratch = Scratch::new(test);
        let Some(device) = LoopDevice::new(&scratch, "system", "mkfs.ext4 -q", 4000) else {
            skip(test, "no loop device");
            return None;
        };
        let root = device.point.clone();
        let archive = archive.display();
        shell(
            &root,
            &format!("tar -xpf {archive}; mount -t proc proc proc; mount --bind /dev dev"),
        );
        Some(Debian {
            stores: Vec::new(),
            mounts: Mounts(vec![root.join("proc"), root.join("dev")]),
            root,
            _device: device,
            scratch,
        })
    }

    /// Makes it a system with transactions.
    fn with_stores(mut self) -> Debian {
        self.atomdir(&["init"], &[]).expect(0);
        let user = self.user();
        let roots = STORES.map(|name| self.root.join(name));
        self.stores = roots.map(|root| Store::existing(&root, &user)).into();
        self
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

    fn upgrading(&self) -> Command {
        let root = self.root.display().to_string();
        self.command(&["run"], &["--", "chroot", &root, "sh", "-ec", UPGRADE])
    }

    fn in_root(&self, script: &str) -> String {
        let root = self.root.display().to_string();
        let outcome = capture_output(Command::new("chroot").args([&root, "sh", "-ec", script]));
        outcome.expect(0).text()
    }

    /// What each directory holds, without the files that apt and dpkg lock.
    fn look(&self) -> Vec<Tree> {
        let trees = STORES.map(|name| {
            let mut tree = look(&self.root.join(name));
            tree.entries.retain(|path, _| {
                let name = path.file_name().unwrap_or_default();
                !name.to_string_lossy().to_lowercase().starts_with("lock")
            });
            tree
        });
        trees.into()
    }

    fn is_sound(&self) -> bool {
        let problems = self.in_root("dpkg --verify; dpkg --audit");
        assert_eq!(problems, "", "the database disagrees with the files");
        self.root.join("usr/sbin/nginx").exists()
    }
}

fn options() -> CompareOptions {
    CompareOptions {
        directory_times: Times::Ignored,
        ..CompareOptions::copied()
    }
}

/// What depends on the time at which packages are installed.
fn without_records(mut tree: Tree) -> Tree {
    let records = ["log", "cache", "lib/apt", "lib/dpkg/lock"].map(Path::new);
    (tree.entries).retain(|path, _| !records.iter().any(|record| path.starts_with(record)));
    tree
}

#[test]
fn debian_is_upgraded_whole_whenever_it_is_killed() {
    let test = "system-debian";
    if !only_in_full_tier(test) {
        return;
    }
    let Some(plain) = Debian::new("system-plain") else {
        return;
    };
    plain.in_root(UPGRADE);
    let wanted = plain.look();
    assert!(plain.is_sound());
    drop(plain);
    let Some(debian) = Debian::new(test) else {
        return;
    };
    let debian = debian.with_stores();
    let before = debian.look();
    let began = Instant::now();
    capture_output(&mut debian.upgrading()).expect(0);
    let length = began.elapsed();
    assert!(debian.is_sound());
    for ((name, wanted), found) in STORES.iter().zip(wanted).zip(debian.look()) {
        let (wanted, found) = (without_records(wanted), without_records(found));
        assert_equal(name, &wanted, &found, &CompareOptions::alike());
    }
    undo(&debian, &before);
    let random = &mut Random::for_test(test);
    let mut landed = 0;
    for round in 0..16 {
        // While packages are installed, or in the moment of the commit.
        let is_early = round % 4 == 0;
        if is_killed_and_lands(&debian, (random, is_early), length, &before) {
            landed += 1;
            undo(&debian, &before);
        }
    }
    eprintln!("{landed} of 16 killed upgrades had landed");
    for store in &debian.stores {
        store.assert_at_rest();
    }
    drop(debian.mounts);
}

fn undo(debian: &Debian, before: &[Tree]) {
    debian.atomdir(&["undo"], &[]).expect(0);
    assert!(!debian.is_sound());
    for ((name, before), found) in STORES.iter().zip(before).zip(debian.look()) {
        assert_equal(name, before, &found, &options());
    }
}

/// Kills an upgrade and all services at some moment. Afterwards it has landed in all stores or in none.
fn is_killed_and_lands(
    debian: &Debian,
    (random, is_early): (&mut Random, bool),
    length: Duration,
    before: &[Tree],
) -> bool {
    let upgraded = debian.root.join("tmp/upgraded");
    let _ = fs::remove_file(&upgraded);
    let mut command = debian.upgrading();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().expect("it starts");
    match is_early {
        true => std::thread::sleep(length * random.below(1000) as u32 / 1000),
        false => {
            wait_until("the upgrade is done", || upgraded.exists());
            std::thread::sleep(Duration::from_millis(random.below(600) as u64));
        }
    }
    let _ = run.kill();
    run.wait().expect("it ends");
    for store in &debian.stores {
        store.kill_service();
    }
    debian.atomdir(&["recover"], &[]).expect(0);
    // What is left of the command has lost its view. Until it has ended it keeps the locks.
    wait_until("nobody installs packages", || {
        debian.atomdir(&["run"], &["--", "true"]).code != CONFLICT
    });
    let has_landed = debian.is_sound();
    if !has_landed {
        for ((name, before), found) in STORES.iter().zip(before).zip(debian.look()) {
            assert_equal(name, before, &found, &options());
        }
    } else {
        let changed = before.iter().zip(debian.look()).take(3);
        let is_changed = |(a, b): (&Tree, Tree)| !compare(a, &b, &options()).is_empty();
        assert!(changed.into_iter().all(is_changed), "it landed in a part");
    }
    has_landed
}
