#![cfg(test)]

//! What a confined command finds outside of its view, and what is hidden from a sealed one.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use atomdir_testing::exit_code::USAGE;
use atomdir_testing::{Fixture, binary, capture_output, shell, tools_present};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).expect("it can be read")
}

#[test]
fn a_confined_command_has_temporary_directories_of_its_own() {
    Fixture::for_each_view("confined-tmp", "echo old > file", |one, view| {
        let outside = format!("/tmp/atomdir-outside-{}", std::process::id());
        fs::write(&outside, "outside").expect("written");
        let name = format!("atomdir-inside-{}", std::process::id());
        let text = format!(
            r#"
            test ! -e {outside}
            for place in /tmp /var/tmp /dev/shm; do
                echo inside > $place/{name}; test "$(cat $place/{name})" = inside
                test "$(stat -c %a $place)" = 1777
            done
            made=$(TMPDIR= mktemp); echo x > "$made"; test "${{TMPDIR-unset}}" = unset
            (echo x > /etc/{name}) 2> /dev/null && exit 9
            echo new > file
            "#
        );
        let words = ["run", "--confine", "--view", view, "--", "sh", "-ec", &text];
        let mut command = one.store.command(words);
        capture_output(command.env("TMPDIR", "/etc")).expect(0);
        assert_eq!(read(one.base.join("file")), "new\n");
        for place in ["/tmp", "/var/tmp", "/dev/shm"] {
            assert!(!Path::new(place).join(&name).exists());
        }
        fs::remove_file(&outside).expect("removed");
    });
}

#[test]
fn a_confined_command_finds_its_home_empty_but_for_what_is_named() {
    Fixture::for_each_view("confined-home", "echo old > file", |one, view| {
        let user = one.store.user();
        let home = one.scratch.join("own home");
        fs::create_dir_all(home.join("work")).expect("made");
        fs::create_dir(home.join("cache")).expect("made");
        for name in ["secret", "settings", "work/secret", "cache/old"] {
            fs::write(home.join(name), name).expect("written");
        }
        shell(&home, &format!("chown -R {}:{} .", user.uid, user.gid));
        let run = |options: &[&str], text: &str| {
            let shell = ["--", "sh", "-ec", text];
            let words = [&["run", "--confine", "--view", view], options, &shell].concat();
            let mut command = one.store.command(words);
            capture_output(command.env("HOME", &home).current_dir(&home))
        };
        // The scratch directory is in /var/tmp, which is private as well.
        let nothing = r#"test ! -e "$HOME/secret"; test ! -e "$HOME/work"; echo new > file"#;
        run(&[], nothing).expect(0);
        assert_eq!(read(one.base.join("file")), "new\n");
        let (settings, cache) = (home.join("settings"), home.join("cache"));
        let (settings, cache) = (
            settings.to_str().expect("text"),
            cache.to_str().expect("text"),
        );
        let named = r#"
            test "$(cat "$HOME/settings")" = settings
            (echo x > "$HOME/settings") 2> /dev/null && exit 9
            test "$(ls "$HOME")" = "cache
settings"
            echo made > "$HOME/cache/new"
        "#;
        run(&["--read", settings, "--write", cache], named).expect(0);
        assert_eq!(read(home.join("cache/new")), "made\n");
        assert_eq!(read(home.join("settings")), "settings");
        let whole =
            r#"test -e "$HOME/secret"; (echo x > "$HOME/new") 2> /dev/null && exit 9; true"#;
        run(&["--read", home.to_str().expect("text")], whole).expect(0);
        run(&["--read", "/no/such"], "true")
            .expect(USAGE)
            .says(&["/no/such"]);
    });
}

/// Many keep the files of their home in a repository, with symbolic links to them.
#[test]
fn named_symbolic_links_lead_to_what_they_name() {
    Fixture::for_each_view("confined-links", "echo old > file", |one, view| {
        let home = one.scratch.join("home");
        fs::create_dir_all(home.join("dotfiles/config/tool")).expect("made");
        for name in [
            "dotfiles/settings",
            "dotfiles/config/tool/one",
            "dotfiles/secret",
        ] {
            fs::write(home.join(name), name).expect("written");
        }
        for (target, link) in [
            ("dotfiles/settings", "settings"),
            ("settings", "again"),
            ("dotfiles/config", "config"),
        ] {
            std::os::unix::fs::symlink(target, home.join(link)).expect("made");
        }
        let path = |name: &str| format!("{}/{name}", home.display());
        let text = r#"
            test "$(cat "$HOME/again" "$HOME/config/tool/one")" = "dotfiles/settingsdotfiles/config/tool/one"
            test ! -e "$HOME/dotfiles/secret"
        "#;
        let mut command = one.store.command([
            "run",
            "--confine",
            "--view",
            view,
            "--read",
            &path("again"),
            "--read",
            &path("config/tool"),
            "--",
            "sh",
            "-ec",
            text,
        ]);
        capture_output(command.env("HOME", &home)).expect(0);
    });
}

/// In the view a hidden place may be of another type than in the base.
#[test]
fn what_is_hidden_may_have_changed_its_type() {
    let prepare = "mkdir keys; echo secret > .env";
    Fixture::for_each_view("confined-types", prepare, |one, _| {
        let begun = one.store.begin();
        let text = "rmdir keys; echo secret > keys; rm .env; mkdir .env; echo secret > .env/one";
        let id = begun.id.to_string();
        let words = ["run", "--in", &id, "--", "sh", "-ec", text];
        one.store.call(words).expect(0);
        let base = one.base.display();
        let text = r#"test -z "$(cat keys)"; test -z "$(ls -A .env)""#;
        let words = [
            "run",
            "--in",
            &id,
            "--hide",
            &format!("{base}/keys"),
            "--hide",
            &format!("{base}/.env"),
            "--",
            "sh",
            "-ec",
            text,
        ];
        one.store.call(words).expect(0);
        one.store.abort(&begun).expect(0);
    });
}

/// The home is the database's and the environment's. Here the store is in it.
#[test]
fn a_store_in_the_home_is_all_that_a_confined_command_sees_of_it() {
    Fixture::for_each_owner(
        "confined-in-home",
        "mkdir dir; echo old > dir/file",
        |one| {
            let home = one.scratch.path();
            fs::write(home.join("secret"), "secret").expect("written");
            let text =
                "test -e file; test ! -e ../../secret; test ! -e $HOME/secret; echo new > file";
            let mut command = std::process::Command::new(binary());
            one.store.user().dress(&mut command);
            command
                .args(["run", "--confine", "--", "sh", "-ec", text])
                .current_dir(one.base.join("dir"));
            capture_output(command.env("HOME", home)).expect(0);
            assert_eq!(read(one.base.join("dir/file")), "new\n");
        },
    );
}

#[test]
fn hidden_paths_are_empty_and_stay_as_they_are() {
    let prepare = "echo secret > .env; mkdir keys; echo secret > keys/one; echo old > file";
    Fixture::for_each_view("confined-hide", prepare, |one, view| {
        let outside = one.scratch.join("outside");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("secret"), "secret").expect("written");
        let user = one.store.user();
        chown(&outside, Some(user.uid), Some(user.gid)).expect("given");
        let base = one.base.display();
        let (env, keys) = (format!("{base}/.env"), format!("{base}/keys"));
        let outside = outside.to_str().expect("text");
        let text = format!(
            r#"
            test -z "$(cat .env)"; test -z "$(ls -A keys)"; test -z "$(ls -A {outside})"
            (echo x > keys/new) 2> /dev/null && exit 9
            rm -f .env 2> /dev/null && exit 9
            mv keys other 2> /dev/null && exit 9
            umount .env 2> /dev/null && exit 9
            unshare -Urm umount .env 2> /dev/null && exit 9
            echo new > file
            "#
        );
        let options = [
            "--hide", &env, "--hide", &keys, "--hide", outside, "--view", view,
        ];
        one.store.run_with(&options, &text).expect(0);
        assert_eq!(read(one.base.join("file")), "new\n");
        assert_eq!(read(one.base.join(".env")), "secret\n");
        assert_eq!(read(one.base.join("keys/one")), "secret\n");
        for place in [one.base.to_str().expect("text"), "/"] {
            one.store
                .run_with(&["--hide", place], "true")
                .expect(USAGE)
                .says(&["would hide the store"]);
        }
    });
}

#[test]
fn a_command_without_a_network_reaches_only_itself() {
    let test = "a_command_without_a_network_reaches_only_itself";
    if !tools_present(test, &["python3"]) {
        return;
    }
    Fixture::for_each_view("confined-network", "true", |one, view| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("it has one").port();
        let program = format!(
            r#"
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
    raise SystemExit(9)
except ConnectionRefusedError:
    pass
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname(), 5)
devices = open("/proc/net/dev").read().splitlines()[2:]
assert all(one.strip().startswith("lo:") or "0       0" in one for one in devices), devices
"#
        );
        let words = [
            "run",
            "--no-network",
            "--view",
            view,
            "--",
            "python3",
            "-c",
            &program,
        ];
        one.store.call(words).expect(0);
    });
}

#[test]
fn only_named_variables_pass() {
    Fixture::for_each_owner("confined-env", "true", |one| {
        let variables = |options: &[&str]| {
            let command = ["--", "env"];
            let mut command = one
                .store
                .command(["run"].iter().chain(options).chain(&command));
            command
                .env("TOKEN", "secret")
                .env("WANTED", "here")
                .env("LC_ALL", "C");
            capture_output(&mut command).expect(0).text()
        };
        assert!(variables(&["--sealed"]).contains("TOKEN=secret"));
        let passed = variables(&["--env", "WANTED,SET=to=this"]);
        for line in [
            "WANTED=here",
            "SET=to=this",
            "LC_ALL=C",
            "ATOMDIR_STORE=",
            "PATH=",
        ] {
            assert!(passed.contains(line), "{passed}");
        }
        assert!(!passed.contains("secret"), "{passed}");
        assert!(
            passed.contains("ATOMDIR_SECRET=\n"),
            "it is sealed\n{passed}"
        );
    });
}

/// bubblewrap in a confined command, and the other way round.
#[test]
fn confined_commands_and_bubblewrap_compose() {
    let test = "confined_commands_and_bubblewrap_compose";
    if !tools_present(test, &["bwrap"]) {
        return;
    }
    Fixture::for_each_view(
        "confined-bwrap",
        "echo secret > .env; echo old > file",
        |one, view| {
            let hide = format!("{}/.env", one.base.display());
            let inner =
                "test -z \"$(cat .env)\"; (echo x > /etc/x) 2> /dev/null && exit 9; echo in > file";
            let words = [
                "run",
                "--confine",
                "--view",
                view,
                "--",
                "bwrap",
                "--unshare-user",
                "--dev-bind",
                "/",
                "/",
                "--ro-bind",
                "/dev/null",
                &hide,
                "sh",
                "-ec",
                inner,
            ];
            one.store.call(words).expect(0);
            assert_eq!(read(one.base.join("file")), "in\n");
            if !one.store.user().is_root() {
                // Nobody's store is not trusted in a user namespace without root.
                return;
            }
            let begun = one.store.begin();
            let outer = format!(
                "{} -C {} run --confine --view exact -- sh -ec 'echo out > file; echo x > /tmp/x'",
                binary().display(),
                one.base.display()
            );
            let mut command = std::process::Command::new("bwrap");
            one.store.user().dress(&mut command);
            command.args(["--dev-bind", "/", "/", "sh", "-ec", &outer]);
            capture_output(&mut command).expect(0);
            assert_eq!(read(one.base.join("file")), "out\n");
            one.store.abort(&begun).expect(0);
        },
    );
}
