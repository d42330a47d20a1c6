#![cfg(test)]

//! Sealed commands in stores that are visible at several places. None reaches the base.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::{Fixture, Outcome, binary, capture_output, unmount};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).expect("it can be read")
}

fn dry_run(one: &Fixture, view: &str, text: &str) -> Outcome {
    one.store.run_with(&["--dry-run", "--view", view], text)
}

/// Undoes a mount when the test ends, even if it fails.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn mount_new(one: &Fixture, name: &str, kind: &str) -> Mounted {
    let place = one.scratch.join(name);
    fs::create_dir(&place).expect("made");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount(kind, &place, kind, flags, None).expect("mounted");
    Mounted(place)
}

fn mount_at(one: &Fixture, name: &str, source: &Path) -> Mounted {
    let place = one.scratch.join(name);
    match source.is_dir() {
        true => fs::create_dir(&place).expect("made"),
        false => fs::write(&place, "").expect("made"),
    }
    rustix::mount::mount_bind(source, &place).expect("bound");
    Mounted(place)
}

#[test]
fn a_sealed_command_finds_the_base_at_no_other_mount() {
    let prepare = "mkdir -p dir/sub; echo old > dir/sub/file; echo old > file";
    Fixture::for_each_view("sealed-mounts", prepare, |one, view| {
        let above = mount_at(one, "above", one.scratch.path());
        let whole = mount_at(one, "the whole", &one.base);
        let part = mount_at(one, "part", &one.base.join("dir/sub"));
        let single = mount_at(one, "single", &one.base.join("file"));
        let control = mount_at(one, "control", &one.base.join(".atomdir"));
        let text = format!(
            r#"
            cd {scratch}
            for file in above/base/file "the whole/file" single; do
                echo through > "$file" || true
                test "$(cat "$file")" = "$(cat {base}/file)"
            done
            echo through > part/file || true
            for directory in above/base "the whole" control; do
                ls -a "$directory" | grep -q -e atomdir -e socket -e stage && exit 9 || true
            done
            test -z "$(ls -A control)"
            umount part 2> /dev/null && exit 9 || true
            umount {base} 2> /dev/null && exit 9 || true
            unshare -Urm umount {base} 2> /dev/null && exit 9 || true
            mkdir -p {base}/seen
            unshare -Urm mount --bind {scratch} {base}/seen 2> /dev/null && exit 9 || true
            rmdir {base}/seen
            "#,
            scratch = one.scratch.path().display(),
            base = one.base.display(),
        );
        dry_run(one, view, &text).expect(0);
        for file in ["file", "dir/sub/file"] {
            assert_eq!(read(one.base.join(file)), "old\n");
        }
        drop((above, whole, part, single, control));
    });
}

/// A hidden directory, or an empty home, is also empty where another mount shows it.
#[test]
fn what_is_hidden_from_a_command_is_hidden_at_every_mount() {
    let prepare = "mkdir keys; echo secret > keys/one; echo secret > .env";
    Fixture::for_each_view("sealed-hidden", prepare, |one, view| {
        let outside = one.scratch.join("outside");
        fs::create_dir_all(outside.join("home/work")).expect("made");
        for file in ["secret", "home/secret", "home/work/file"] {
            fs::write(outside.join(file), "secret").expect("written");
        }
        let again = mount_at(one, "again", &outside);
        let whole = mount_at(one, "the whole", &one.base);
        let keys = mount_at(one, "the keys", &one.base.join("keys"));
        let (scratch, base) = (one.scratch.path().display(), one.base.display());
        let hide = |path: String| ["--hide".to_owned(), path];
        let mut options = vec!["--view".to_owned(), view.to_owned()];
        for path in [
            format!("{base}/keys"),
            format!("{base}/.env"),
            format!("{scratch}/outside"),
        ] {
            options.extend(hide(path));
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let text = r#"
            cd ..
            for place in base/keys "the whole/keys" "the keys" outside again; do
                test -z "$(ls -A "$place")"
            done
            test -z "$(cat base/.env "the whole/.env")"
        "#;
        one.store.run_with(&options, text).expect(0);
        let mut command = one.store.command([
            "run",
            "--confine",
            "--view",
            view,
            "--write",
            &format!("{scratch}/again/home/work"),
            "--",
            "sh",
            "-ec",
            r#"test ! -e "$HOME/secret"; test ! -e "$PLACE/home/secret"; test -e "$PLACE/home/work/file""#,
        ]);
        command.env("HOME", outside.join("home"));
        command.env("PLACE", one.scratch.join("again"));
        capture_output(&mut command).expect(0);
        one.store
            .run_with(&["--hide", &format!("{scratch}/the whole")], "true")
            .says(&["would hide the store"]);
        drop((again, whole, keys));
    });
}

/// As for a container that gets all of `/run`.
#[test]
fn a_sealed_command_finds_views_at_no_other_mount() {
    let fixture = Fixture::new("sealed-views", "echo old > file");
    let store = &fixture.store;
    // What the service mounts later is not seen in the mount namespace below.
    store.run_with(&["--view", "native"], "true").expect(0);
    let begun = store.begin();
    let store_views = begun.path.parent().and_then(Path::parent);
    let views = store_views.and_then(Path::parent).expect("it has a place");
    let inside = begun.path.strip_prefix(views).expect("it is below");
    for kind in ["exact", "native"] {
        let text = format!(
            r#"
            mkdir -p all one
            mount --rbind '{views}' all
            mount --bind '{view}' one
            test -e 'all/{inside}/file'; test -e one/file
            cd base
            '{program}' run -q --sealed --view {kind} -- sh -ec '
                for place in all one; do test -z "$(ls -A ../$place)"; done'
            "#,
            views = views.display(),
            view = begun.path.display(),
            inside = inside.display(),
            program = binary().display(),
        );
        let mut command = Command::new("unshare");
        store.user().dress(&mut command);
        command.args(["-m", "sh", "-ec", &text]);
        capture_output(command.current_dir(fixture.scratch.path())).expect(0);
    }
    store.abort(&begun).expect(0);
    store.assert_at_rest();
}

/// One command leaves a closed directory outside of the store, for a later one to open.
#[test]
fn a_sealed_command_finds_the_base_at_no_mount_that_an_earlier_one_has_closed() {
    let prepare = "mkdir -p dir; echo old > dir/file";
    Fixture::for_each_view("sealed-closed", prepare, |one, view| {
        let scratch = one.scratch.path().display();
        let base = one.base.display();
        let own = one.scratch.join("own");
        fs::create_dir(&own).expect("made");
        let owner = fs::metadata(&one.base).expect("there").uid();
        chown(&own, Some(owner), None).expect("given away");
        let whole = mount_at(one, "own/whole", &one.base);
        let part = mount_at(one, "own/part", &one.base.join("dir"));
        let single = mount_at(one, "own/single", &one.base.join("dir/file"));
        dry_run(one, view, &format!("chmod 0 {scratch}/own {base}/dir")).expect(0);
        let text = format!(
            "
            chmod 755 {scratch}/own
            cd {scratch}/own
            for file in whole/dir/file part/file single; do
                echo through > $file || true
            done
            "
        );
        let outcome = dry_run(one, view, &text);
        assert_eq!(read(one.base.join("dir/file")), "old\n");
        // Root can look into closed directories.
        if owner != 0 {
            let said = outcome.expect(CONFIGURATION).error_text();
            assert!(said.contains("may be another way to it"), "{said}");
        }
        drop((whole, part, single));
    });
}

/// A process of an ordinary user, which has no capabilities. It ends with the test.
struct Outside(Child);

impl Outside {
    fn start() -> Outside {
        let mut command = Command::new("sleep");
        command.arg("600").uid(65_534).gid(65_534);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Outside(command.spawn().expect("started"))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A second `/proc`, such as that of a chroot, would lead through outside processes to the
/// base and to their memory.
#[test]
fn a_sealed_command_finds_no_process_outside_and_no_setting_at_any_mount() {
    Fixture::for_each_view("sealed-kernel", "echo old > file", |one, view| {
        let processes = mount_new(one, "processes", "proc");
        let system = mount_new(one, "system", "sysfs");
        let groups = mount_new(one, "groups", "cgroup2");
        let outside = Outside::start();
        let text = format!(
            r#"
            cd {scratch}
            test -z "$(ls -A processes)"
            for through in processes/[0-9]*/root processes/[0-9]*/cwd; do
                echo through > $through/{base}/file && exit 9 || true
            done
            through=processes/{outside}/root/{base}/file
            if test "$(id -u)" = 0; then
                setpriv --reuid 65534 --regid 65534 --clear-groups \
                    sh -c "echo through > $through" && exit 9 || true
            fi
            for setting in system groups /sys /proc/sys/kernel/core_pattern \
                /proc/sysrq-trigger /proc/irq /proc/bus /proc/fs; do
                test -w $setting && {{ echo $setting; exit 9; }} || true
            done
            "#,
            scratch = one.scratch.path().display(),
            base = one.base.display(),
            outside = outside.0.id(),
        );
        dry_run(one, view, &text).expect(0);
        assert_eq!(read(one.base.join("file")), "old\n");
        drop((outside, processes, system, groups));
    });
}
