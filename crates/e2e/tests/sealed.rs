#![cfg(test)]

//! Hostile sealed commands. None of them can commit itself, reach the base or the service,
//! or change anything after its changes were shown.

use std::fs;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::{NO_SUCH, NOT_PERMITTED, USAGE};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, binary, capture_output, for_each_owner, script, shell, tools_present,
    wait_until,
};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).expect("it can be read")
}

fn dry_run(one: &Fixture, view: &str, text: &str) -> Outcome {
    one.store
        .run_with(&["--dry-run", "--view", view], &script(text))
}

#[test]
fn a_command_whose_changes_will_be_shown_does_not_commit_itself() {
    Fixture::for_each_view("sealed-commit", "echo old > file", |one, view| {
        let other = one.store.begin();
        let id = &other.id;
        let text = format!(
            r#"
            echo new > file
            for words in "commit --force" "commit --force $ATOMDIR_TX" "abort {id}" "abort --all" \
                "savepoint s" "begin" "begin --in none" "run -- true" "service stop" \
                "exec $ATOMDIR_TX -- true" "list"; do
                $A $words && exit 9 || test $? = {USAGE}
            done
            test -z "$ATOMDIR_SOCKET$ATOMDIR_SECRET"
            "#
        );
        let outcome = dry_run(one, view, &text).expect(0);
        assert_eq!(outcome.text(), "M file\n");
        assert_eq!(read(one.base.join("file")), "old\n");
        one.store.abort(&other).expect(0);
    });
}

/// The service refuses other commands, however they reach it.
#[test]
fn a_sealed_transaction_is_committed_by_its_own_run_only() {
    Fixture::for_each_owner("sealed-service", "echo old > file", |one| {
        let at_work = "echo new > file";
        let outcome = one.run_and_meanwhile(&["--sealed", "--on-error", "keep"], at_work, || {
            let id = only_id(one);
            for words in [
                &["commit", "--force", &id][..],
                &["exec", &id, "--", "true"],
                &["savepoint", "s", &id],
                &["rollback", "s", &id],
                &["begin", "--in", &id],
                &["diff", &id],
            ] {
                one.store
                    .call(words)
                    .expect(NOT_PERMITTED)
                    .says(&["is sealed"]);
            }
            let status = one.store.call(["status", &id]).expect(0).text();
            assert!(status.contains("M file"), "{status}");
            assert_eq!(read(one.base.join("file")), "old\n");
        });
        outcome.expect(0);
        assert_eq!(read(one.base.join("file")), "new\n");
        // Its owner can abort it.
        let outcome = one.run_and_meanwhile(&["--sealed"], "echo newer > file", || {
            one.store.call(["abort", &only_id(one)]).expect(0);
        });
        outcome.expect(NO_SUCH);
        assert_eq!(read(one.base.join("file")), "new\n");
    });
}

fn only_id(one: &Fixture) -> String {
    let listed = one.store.call(["--json", "list"]).expect(0).text();
    let id = listed
        .split(r#""transaction":"#)
        .nth(1)
        .expect("one is open");
    id.split(',').next().expect("a number").to_owned()
}

#[test]
fn sealed_commands_descendants_end_with_it() {
    let test = "sealed_commands_descendants_end_with_it";
    if !tools_present(test, &["python3"]) {
        return;
    }
    Fixture::for_each_view(
        "sealed-after",
        "echo old > file; echo old > mapped",
        |one, view| {
            // The process leaves its session and its parent, holds files open and maps one.
            let program = r#"
import mmap, os, time
file = os.open("file", os.O_RDWR)
memory = mmap.mmap(os.open("mapped", os.O_RDWR), 4)
ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        number = 0
        while True:
            number += 1
            os.pwrite(file, b"late %d" % number, 0)
            memory[0:4] = b"late"
            open("late", "w").close()
            if number == 1:
                os.write(done, b"x")
    os._exit(0)
os.read(ready, 1)
os.pwrite(file, b"shown", 100)
"#;
            let run = |options: &[&str]| {
                let command = ["--view", view, "--", "python3", "-c", program];
                let words = ["run"].iter().chain(options).chain(&command);
                one.store.call(words).expect(0)
            };
            let assert_none_lives = || {
                let living = living_with(one);
                assert!(living.is_empty(), "{living:?}");
            };
            let listed = run(&["--dry-run"]).text();
            assert_none_lives();
            assert!(listed.contains("M file"), "{listed}");
            assert_eq!(read(one.base.join("file")), "old\n");
            run(&["--sealed"]);
            // No process is left that could write later.
            assert_none_lives();
            assert_eq!(&read(one.base.join("mapped"))[..4], "late");
            assert!(one.base.join("late").exists());
            let committed = one.look();
            one.store.call(["sync"]).expect(0);
            assert_equal(
                "at the commit (left) and later (right)",
                &committed,
                &one.look(),
                &CompareOptions::untouched(),
            );
        },
    );
}

/// The environments of the processes that run in transactions of this store.
fn living_with(one: &Fixture) -> Vec<String> {
    let text = |entry: fs::DirEntry| fs::read(entry.path().join("environ")).ok();
    let wanted = format!("ATOMDIR_STORE={}\0", one.base.display());
    let processes = fs::read_dir("/proc").expect("listed").flatten();
    processes
        .filter_map(text)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .filter(|environment| environment.contains(&wanted))
        .collect()
}

#[test]
fn a_sealed_command_sees_no_process_outside() {
    Fixture::for_each_view("sealed-processes", "echo old > file", |one, view| {
        // In a process namespace of its own the test may have a number that the command's first
        // processes have, too.
        let outer = match std::process::id() {
            ..100 => "none".to_owned(),
            number => number.to_string(),
        };
        let base = one.base.display();
        let text = format!(
            r#"
            test $$ -lt 10
            test ! -e /proc/{outer}
            for process in /proc/[0-9]*; do
                id=$(basename $process)
                # Processes of the command show the view, process 1 shows nothing.
                if test -e $process/root{base}/file; then echo new > $process/root{base}/file; fi
                ls $process/root{base}/.atomdir 2> /dev/null && exit 9 || true
                ls $process/fd/ > /dev/null 2>&1 || true
            done
            kill -KILL 1 || true
            kill -KILL $PPID || true
            test -e /proc/1
            echo x > $PPID-still-there
            "#
        );
        dry_run(one, view, &text).expect(0);
        assert_eq!(read(one.base.join("file")), "old\n");
    });
}

#[test]
fn a_sealed_command_inherits_no_way_to_the_base() {
    Fixture::for_each_view(
        "sealed-descriptors",
        "echo old > file; mkdir dir",
        |one, view| {
            let base = one.base.display();
            let user = one.store.user();
            let mut command = Command::new("/bin/sh");
            user.dress(&mut command);
            let text = format!(
                r#"
            exec 3< {base} 4<> {base}/file 5< / 6< {base}/dir
            mkfifo {home}/pipe; exec 7<> {home}/pipe
            {binary} -C {base} run --dry-run --view {view} -- /bin/sh -c '
                for number in 3 4 5 6; do
                    test ! -e /proc/self/fd/$number || exit 9
                done
                echo new > /proc/self/fd/3/file && exit 9
                echo through >&4 && exit 9
                echo through >&7 || exit 9
                exit 0
            ' 2> /dev/null
            head -n 1 <&7
            rm {home}/pipe
            "#,
                binary = binary().display(),
                home = user.home().display(),
            );
            let outcome = capture_output(command.args(["-ec", &text])).expect(0);
            assert!(outcome.text().contains("through"), "{outcome}");
            assert_eq!(read(one.base.join("file")), "old\n");
        },
    );
}

#[test]
fn a_control_directory_elsewhere_is_hidden_from_a_sealed_command() {
    for_each_owner("sealed-control", |owner| {
        let one = Fixture::owned_by("sealed-control", owner, "echo old > file");
        let (user, place) = (one.store.user(), one.scratch.join("elsewhere"));
        fs::create_dir(&place).expect("made");
        std::os::unix::fs::chown(&place, Some(user.uid), Some(user.gid)).expect("given");
        let other = place.join("base");
        shell(
            &place,
            &format!("mkdir base; echo old > base/file; chown -R {} .", user.uid),
        );
        let control = place.join("control");
        let mut init = Command::new(binary());
        user.dress(&mut init);
        init.arg("init").arg("--control").arg(&control).arg(&other);
        capture_output(&mut init).expect(0);
        let store = atomdir_testing::Store::existing(&other, user);
        let text = format!("test -d {0}; test -z \"$(ls -A {0})\"", control.display());
        store
            .run(&format!("test -n \"$(ls -A {})\"", control.display()))
            .expect(0);
        store.run_with(&["--sealed"], &text).expect(0);
        store.call(["service", "stop", "--abort"]).expect(0);
        one.store.assert_at_rest();
    });
}

#[test]
fn a_confined_command_writes_in_the_view_and_in_named_places_only() {
    Fixture::for_each_view("sealed-confine", "echo old > file", |one, view| {
        let user = one.store.user();
        let open = one.scratch.join("open");
        fs::create_dir(&open).expect("made");
        std::os::unix::fs::chown(&open, Some(user.uid), Some(user.gid)).expect("given");
        let (open, home) = (open.display(), user.home().display());
        let text = format!(
            r#"
            echo new > file; echo more > more
            echo named > {open}/named
            for file in {home}/x /etc/atomdir-x-$$ /var/atomdir-x-$$; do
                (echo x > $file) 2> /dev/null && exit 9 || true
            done
            chmod 700 {home} 2> /dev/null && exit 8 || true
            echo x > /dev/null
            "#
        );
        let options = ["--confine", "--write", &open.to_string(), "--view", view];
        one.store.run_with(&options, &script(&text)).expect(0);
        assert_eq!(read(one.base.join("file")), "new\n");
        assert_eq!(read(one.scratch.join("open/named")), "named\n");
        one.store
            .run_with(&["--confine", "--write", "/no/such/place"], "true")
            .expect(USAGE)
            .says(&["/no/such/place"]);
        one.store
            .run_with(&["--write", "/tmp"], "true")
            .expect(USAGE);
    });
}

#[test]
fn exit_codes_signals_and_time_limits_are_those_of_other_runs() {
    Fixture::for_each_view("sealed-ends", "", |one, view| {
        let run = |options: &[&str], text: &str| {
            let view = ["--view", view, "--sealed"];
            let options: Vec<&str> = view.iter().chain(options).copied().collect();
            one.store.run_with(&options, text)
        };
        run(&[], "exit 7").expect(7);
        run(&[], "kill -TERM $$").expect(128 + 15);
        run(&[], "kill -SEGV $$").expect(128 + 11);
        run(
            &["--timeout", "1"],
            "(trap '' TERM; sleep 1000) & sleep 1000",
        )
        .expect(124);
        one.store
            .call(["run", "--sealed", "--", "/no/such/program"])
            .expect(127);
        // The output ends with the command, even if the command leaves processes running.
        let outcome = run(&[], "sleep 1000 & echo said");
        assert_eq!(outcome.expect(0).text(), "said\n");
    });
}

/// A signal to `atomdir` reaches the command, and the death of `atomdir` ends the command.
/// A sealed command can signal its process group, which `atomdir` is in, and so must not end or stop
/// a part of it.
#[test]
fn signals_of_a_sealed_command_to_its_group_end_nothing_else() {
    Fixture::for_each_view("sealed-group", "", |one, view| {
        // `atomdir` itself ignores the first and blocks the second.
        for signal in ["PIPE", "TTOU"] {
            let script =
                format!("trap '' {signal}; kill -s {signal} 0; echo {signal} > after; exit 3");
            let words = ["run", "--sealed", "--on-error", "commit", "--view", view];
            let shell = ["--", "bash", "-c", &script];
            let mut command = one.store.command(words.iter().chain(&shell));
            // Not that of the test.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            capture_output(&mut command).expect(3);
            assert_eq!(read(one.base.join("after")), format!("{signal}\n"));
        }
        assert!(living_with(one).is_empty(), "{:?}", living_with(one));
    });
}

#[test]
fn signals_are_passed_on_to_a_sealed_command() {
    Fixture::for_each_owner("sealed-signals", "", |one| {
        let signs = one.scratch.join("signs");
        shell(one.scratch.path(), "mkdir -m 1777 signs");
        let start = |text: &str| {
            let mut command = one
                .store
                .command(["run", "--sealed", "--", "/bin/sh", "-c", text]);
            let child = command.spawn().expect("it starts");
            wait_until("the command", || signs.join("ready").exists());
            fs::remove_file(signs.join("ready")).expect("removed");
            child
        };
        let kill = |child: &std::process::Child, signal| {
            let id = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(id, signal).expect("it runs");
        };
        let ready = signs.join("ready");
        let ready = ready.display();
        let mut child = start(&format!(
            "sleep 1000 & trap 'exit 42' USR1; : > {ready}; wait"
        ));
        kill(&child, rustix::process::Signal::USR1);
        assert_eq!(child.wait().expect("it ends").code(), Some(42));
        let mut child = start(&format!(": > {ready}; echo x > x; exec sleep 1000"));
        // A process that is being replaced by another program shows no environment.
        wait_until("the command to be seen", || !living_with(one).is_empty());
        kill(&child, rustix::process::Signal::KILL);
        child.wait().expect("it ends");
        wait_until("the end of the command", || living_with(one).is_empty());
        assert!(!one.base.join("x").exists());
    });
}

/// Changes that give programs rights are shown apart from the other changes.
#[test]
fn rights_that_a_command_hands_out_are_shown() {
    let prepare = "for name in old user group plain; do echo x > $name; chmod 755 $name; done; chmod 4755 old";
    Fixture::for_each_view("sealed-rights", prepare, |one, view| {
        let is_root = one.store.user().is_root();
        let special = match is_root {
            true => "mknod block b 7 99; mknod character c 1 3; setcap cap_net_raw+ep plain",
            false => "true",
        };
        let text = format!(
            "PATH=$PATH:/usr/sbin:/sbin
            chmod u+s user; chmod g+s group; cp plain new; chmod 6711 new; mkdir -m 2755 directory
            mkdir dir; mv old dir/moved; {special}"
        );
        let mut wanted = vec![
            "A new (mode 6711: set-user-id, set-group-id)",
            "A directory",
            "M user (mode 0755 -> 4755: set-user-id)",
            "M group (mode 0755 -> 2755: set-group-id)",
        ];
        if is_root {
            wanted.extend([
                // Where the store is another user's, its change of owner has removed this bit.
                "R old -> dir/moved (mode 4755: set-user-id)",
                "A block (block device 7:99)",
                "A character (character device 1:3)",
                "M plain (mode 0755: capabilities)",
            ]);
        }
        let shows = |listed: &str| {
            for line in &wanted {
                assert!(listed.lines().any(|one| one == *line), "{line}: {listed}");
            }
        };
        shows(&dry_run(one, view, &text).expect(0).text());
        let json = one.store.call([
            "--json",
            "run",
            "--dry-run",
            "--view",
            view,
            "--",
            "/bin/sh",
            "-ec",
            &text,
        ]);
        let json = json.expect(0).text();
        assert!(
            json.contains(r#""path":"user","rights":["set-user-id"]"#),
            "{json}"
        );
        let begun = one.store.begin();
        one.store.exec(&begun, &text).expect(0);
        shows(&one.store.call(["status", &begun.id]).expect(0).text());
        let diff = one.store.call(["diff", &begun.id]).expect(0).text();
        let new = "# new: file, mode 6711 (set-user-id, set-group-id)";
        assert!(diff.contains(new), "{diff}");
        one.store.abort(&begun).expect(0);
    });
}

/// The list names such a file by a name that it has lost, and nobody knows its others.
#[test]
fn changes_that_stay_under_other_names_are_marked() {
    let prepare = "mkdir dir; echo x > one; ln one dir/two";
    Fixture::for_each_view("sealed-names", prepare, |one, view| {
        if !one.store.user().is_root() && view == "native" {
            // Overlayfs refuses to change the file.
            return;
        }
        for rest in ["rm one", "rm one; touch one", "mv one dir/new; rm dir/new"] {
            let text = format!("chmod 4755 one; {rest}");
            let listed = dry_run(one, view, &text).expect(0).text();
            assert!(
                listed.contains("(changed under its other names"),
                "{listed}"
            );
        }
    });
}

/// A directory that nobody may search must not hide its contents silently.
#[test]
fn unreadable_entries_are_reported() {
    Fixture::for_each_owner("sealed-hidden", "", |one| {
        if one.store.user().is_root() {
            return;
        }
        let text = "mkdir d; echo x > d/tool; chmod 4755 d/tool; chmod 0 d";
        let listed = dry_run(one, "exact", text).expect(0).text();
        assert!(
            listed.contains("A d/tool (not to be seen by its owner)"),
            "{listed}"
        );
    });
}
