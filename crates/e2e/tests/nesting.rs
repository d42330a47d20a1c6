#![cfg(test)]

//! Transactions within transactions, and savepoints, through the command.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use atomdir_testing::exit_code::NO_SUCH;
use atomdir_testing::{Fixture, Store, binary, capture_output, script, tools_present};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref())
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.as_ref().display()))
}

fn json(store: &Store, arguments: &[&str]) -> String {
    store
        .call(["--json"].iter().chain(arguments))
        .expect(0)
        .text()
}

#[test]
fn a_run_within_a_run_nests() {
    Fixture::for_each_view(
        "nest",
        "echo old > file; mkdir dir; echo d > dir/d",
        |one, view| {
            let outcome = one.store.run_with(&["--view", view], &script(
            r#"
            echo outer > outer
            # It sees the outer one's state, and commits into it.
            $A run -- sh -ec 'test $(cat outer) = outer; echo inner > inner; mv dir moved; echo new > file'
            test $(cat inner file moved/d | tr '\n' ' ' | tr -d ' ') = innernewd
            test ! -e dir
            # Its abort leaves the outer one as it is.
            $A run -- sh -ec 'rm file; echo lost > lost; exit 9' && exit 1 || test $? = 9
            test $(cat file) = new; test ! -e lost
            # To any depth; output may be redirected into a file of the outer one.
            $A run -- sh -ec "echo 1; $A run -- sh -ec 'echo 2; $A run -- sh -ec \"echo 3; echo three > three\"'; ! $A run -- false" > output
            test "$(cat output | tr '\n' ' ')" = "1 2 3 "
            ls
            "#,
        ));
            let outcome = outcome.expect(0);
            assert_eq!(outcome.text(), "file\ninner\nmoved\nouter\noutput\nthree\n");
            assert_eq!(read(one.base.join("file")), "new\n");
            assert_eq!(read(one.base.join("output")), "1\n2\n3\n");
            assert_eq!(read(one.base.join("moved/d")), "d\n");
        },
    );
}

#[test]
fn aborting_the_outer_transaction_drops_nested_changes() {
    Fixture::for_each_view("nest-abort", "echo old > file", |one, view| {
        let outcome = one.store.run_with(
            &["--view", view],
            &script("$A run -- sh -ec 'echo new > file'; exit 3"),
        );
        outcome.expect(3);
        assert_eq!(read(one.base.join("file")), "old\n");
    });
}

#[test]
fn nested_run_conflicting_with_the_outer_is_retried() {
    Fixture::for_each_view("nest-conflict", "echo old > file", |one, view| {
        let outcome = one.store.run_with(
            &["--view", view],
            &script(
                r#"
            exec 3>> file
            nested=$($A begin | head -n 1)
            $A exec $nested -- sh -c 'echo nested >> file'
            echo outer >&3
            $A commit $nested && exit 1 || test $? = 75
            $A abort $nested
            test "$(cat file | tr '\n' ' ')" = "old outer "
            $A run --retry 2 -- sh -c 'echo nested >> file'
            "#,
            ),
        );
        let outcome = outcome.expect(0);
        let outcome = outcome.says(&["outer transaction", "diff 2 --binary", "abort 2", "--retry"]);
        // The message offers nothing that nested transactions refuse.
        for refused in ["--merge", "refresh", "--take", "PATH"] {
            assert!(!outcome.error_text().contains(refused), "{outcome}");
        }
        assert_eq!(read(one.base.join("file")), "old\nouter\nnested\n");
    });
}

/// What the kernel has cached of the outer view must be invalidated: names found and not
/// found, attributes, contents, listings. A process that has a file open must see the change, too.
#[test]
fn outer_process_sees_the_nested_commit() {
    let look = "cat file; cat dir/* 2> /dev/null; ls . dir; stat -c %a file; test -e new && cat new; readlink link || true; echo";
    Fixture::for_each_view(
        "nest-caches",
        "echo old > file; mkdir dir; echo a > dir/a; echo b > dir/b; ln -s old link",
        |one, view| {
            let change = "echo changed > file; chmod 600 file; rm dir/a; echo new > new; \
                          mv dir/b dir/c; ln -sfn new link; echo replaced > x; mv x dir/b";
            let outcome = one.store.run_with(
                &["--view", view],
                &script(&format!(
                    r#"
                exec 4< file
                look() {{ {look}; }}
                look > /dev/null
                $A run -- sh -ec '{change}'
                look
                cat <&4
                test {view} = exact || exit 0
                $A savepoint before
                rm -r dir; echo other > file; chmod 644 file; echo more > more; rm link
                look > /dev/null 2>&1 || true
                $A rollback before -q
                look
                test ! -e more
                ls
                "#
                )),
            );
            let wanted =
                "changed\nreplaced\nb\n.:\ndir\nfile\nlink\nnew\n\ndir:\nb\nc\n600\nnew\nnew\n\n";
            let text = outcome.expect(0).text();
            let descriptor = "changed\n";
            if view == "native" {
                assert_eq!(text, format!("{wanted}{descriptor}"));
                return;
            }
            assert_eq!(
                text,
                format!(
                    "{wanted}{descriptor}savepoint before set in transaction 1\n{wanted}dir\nfile\nlink\nnew\n"
                )
            );
        },
    );
}

/// A shell that stays in the view and answers commands.
struct Shell {
    child: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start(store: &Store, transaction: &str) -> Shell {
        let mut command = store.command(["exec", transaction, "--", "sh"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("exec starts");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Shell { child, answers }
    }

    /// Runs a command in the shell and returns what it prints.
    fn ask(&mut self, question: &str) -> String {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{question} || echo failed; echo END").expect("the shell listens");
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            let count = self.answers.read_line(&mut line);
            assert!(count.expect("the shell answers") > 0, "the shell has ended");
            if line == "END\n" {
                return answer;
            }
            answer.push_str(&line);
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn a_rollback_is_seen_by_everyone_in_the_transaction() {
    Fixture::for_each_owner("rollback", "echo old > file; mkdir dir", |one| {
        let store = &one.store;
        let view = store.begin();
        let mut shell = Shell::start(store, &view.id);
        assert_eq!(shell.ask("cat file"), "old\n");
        store.call(["savepoint", "one", &view.id]).expect(0);
        assert_eq!(
            shell.ask("echo new > file; echo x > dir/made; cat file"),
            "new\n"
        );
        let mut within = Shell::start(store, &view.id);
        assert_eq!(within.ask("cd dir; cat made"), "x\n");
        store.call(["savepoint", "two", &view.id]).expect(0);
        store.exec(&view, "rm -r dir; echo newer > file").expect(0);
        let status = json(store, &["status", &view.id]);
        assert!(status.contains(r#""savepoints":["one","two"]"#), "{status}");
        store.call(["rollback", "two", &view.id]).expect(0);
        assert_eq!(shell.ask("cat file"), "new\n");
        // The directory is back, but a process that was in it does not see it.
        assert_eq!(within.ask("cat made"), "failed\n");
        assert_eq!(shell.ask("cat dir/made"), "x\n");
        assert_eq!(shell.ask("echo y > dir/other; cat dir/other"), "y\n");
        store.call(["rollback", "one", &view.id]).expect(0);
        assert_eq!(shell.ask("cat file"), "old\n");
        assert_eq!(shell.ask("ls dir | wc -l"), "0\n");
        assert_eq!(shell.ask("echo again > dir/made; cat dir/made"), "again\n");
        within.end();
        store
            .call(["rollback", "two", &view.id])
            .expect(NO_SUCH)
            .says(&["'two'"]);
        store
            .call(["rollback", "one", "999"])
            .expect(NO_SUCH)
            .says(&["999"]);
        shell.end();
        store.commit(&view).expect(0);
        assert_eq!(read(one.base.join("file")), "old\n");
        assert_eq!(read(one.base.join("dir/made")), "again\n");
    });
}

/// If no mount namespace is available, commands run under the view's own path.
#[test]
fn run_under_the_views_own_path_nests() {
    Fixture::for_each_owner("nest-path", "mkdir dir", |one| {
        let store = &one.store;
        let view = store.begin();
        let listed = store.exec(&view, "env | grep ^ATOMDIR_").expect(0).text();
        let mut command = Command::new(binary());
        store.user().dress(&mut command);
        let variables = listed.lines().filter_map(|line| line.split_once('='));
        command
            .envs(variables)
            .args(["run", "--", "sh", "-ec", "pwd; echo x > x"]);
        // The test runs as root, who cannot enter a user's view, so env(1) changes the directory.
        let mut shell = Command::new("env");
        store.user().dress(&mut shell);
        shell.args(["-C".as_ref(), view.path.join("dir").as_os_str()]);
        for (name, value) in command.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            shell.arg(format!("{}={value}", name.to_string_lossy()));
        }
        shell.arg(command.get_program()).args(command.get_args());
        let outcome = capture_output(&mut shell).expect(0);
        let directory = one.base.join("dir");
        assert_eq!(outcome.text().trim(), directory.to_string_lossy());
        assert!(!directory.join("x").exists());
        store.exec(&view, "test -e dir/x").expect(0);
        store.commit(&view).expect(0);
        assert!(directory.join("x").exists());
    });
}

#[test]
fn command_can_begin_an_unnested_transaction() {
    Fixture::for_each_owner("nest-none", "", |one| {
        let outcome = one.store.run_exact(&script(
            "$A run --in none -- sh -c 'echo kept > kept'; test ! -e kept; exit 1",
        ));
        outcome.expect(1);
        assert_eq!(read(one.base.join("kept")), "kept\n");
        let (outer, store) = (one.store.begin(), &one.store);
        store
            .call(["run", "--in", &outer.id, "--", "sh", "-c", "echo in > in"])
            .expect(0);
        assert!(!one.base.join("in").exists());
        store.commit(&outer).expect(0);
        assert_eq!(read(one.base.join("in")), "in\n");
    });
}

#[test]
fn killed_service_aborts_a_nested_transaction_and_keeps_the_outer_one() {
    Fixture::for_each_owner("nest-kill", "echo old > file", |one| {
        let store = &one.store;
        let outer = store.begin();
        store.exec(&outer, "echo outer > file").expect(0);
        let nested = store.begin_with(&["--in", &outer.id]);
        store
            .exec(&nested, "echo nested > file; echo x > x")
            .expect(0);
        store.kill_service();
        store.call(["recover"]).expect(0);
        assert_eq!(read(one.base.join("file")), "old\n");
        assert!(!one.base.join("x").exists());
        store.call(["abort", &nested.id]).expect(NO_SUCH);
        store
            .exec(&outer, "test $(cat file) = outer; test ! -e x")
            .expect(0);
        store.commit(&outer).expect(0);
        assert_eq!(read(one.base.join("file")), "outer\n");
        assert_eq!(json(store, &["list"]).trim(), r#"{"transactions":[]}"#);
    });
}

/// Writes to mapped memory reach a transaction late. A nested transaction must see those
/// from before it began, and its outer one must see those that the nested one made.
#[test]
fn nested_begin_sees_mapped_writes() {
    let test = "nested_begin_sees_mapped_writes";
    if !tools_present(test, &["python3"]) {
        return;
    }
    Fixture::for_each_owner("nest-mapped", "printf aaaa > file", |one| {
        let program = r#"
import mmap, subprocess, sys
def mapped(name):
    file = open(name, "r+b")
    return mmap.mmap(file.fileno(), 4)
def atomdir(*words):
    subprocess.run([sys.argv[1], *words], check=True, stdout=subprocess.DEVNULL)
memory = mapped("file")
memory[0:1] = b"b"
atomdir("run", "--", "python3", "-c", """
import mmap
file = open("file", "r+b")
memory = mmap.mmap(file.fileno(), 4)
assert memory[:] == b"baaa", memory[:]
memory[1:2] = b"c"
""")
assert memory[:] == b"bcaa", memory[:]
assert open("file").read() == "bcaa"
atomdir("savepoint", "here")
memory[2:3] = b"d"
atomdir("rollback", "here")
assert memory[:] == b"bcaa", memory[:]
memory[3:4] = b"e"
"#;
        let binary = binary();
        let binary = binary.to_string_lossy();
        let view = ["run", "--view", "exact"];
        let program = ["--", "python3", "-c", program, &binary];
        let run = view.iter().chain(&program);
        one.store.call(run).expect(0);
        assert_eq!(read(one.base.join("file")), "bcae");
    });
}

/// The commit of a transaction nested in a native view is carried out by the process that mounted
/// the view, so the death of any process leaves the outer transaction with all of it or nothing.
#[test]
fn kills_during_a_commit_into_a_native_view_leave_all_or_nothing() {
    for (who, outer_code) in [("nested", 0), ("outer", 137), ("service", 74)] {
        let prepare = "for i in $(seq 200); do echo old > f$i; done";
        Fixture::for_each_owner("nest-native-kill", prepare, |one| {
            let store = &one.store;
            let outcome = store.run_with(
                &["--view", "native"],
                &script(&format!(
                    r#"
                    service=$($A --json service status | sed 's/.*"process":\([0-9]*\).*/\1/')
                    $A run -q -- sh -ec 'for i in $(seq 200); do echo new > f$i; : > n$i; done' &
                    nested=$!
                    # It has this directory while it carries the commit out.
                    until ls -d .atomdir-* > /dev/null 2>&1; do kill -0 $nested || break; done
                    case {who} in
                        nested) kill -9 $nested ;;
                        outer) kill -9 $PPID ;;
                        service) kill -9 $service ;;
                    esac
                    wait $nested || true
                    # This waits until the other commit has ended.
                    $A run -q -- true
                    "#
                )),
            );
            outcome.expect(outer_code);
            let names = fs::read_dir(&one.base).expect("it can be listed");
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            let is_new = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with('n');
            let added = names.iter().filter(is_new).count();
            let is_file = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with('f');
            let files = names.iter().filter(is_file);
            let changed = files.filter(|name| read(one.base.join(name)) == "new\n");
            assert_eq!(changed.count(), added, "{who}");
            assert!(
                added == 0 || (added == 200 && who == "nested"),
                "{who}: {added}"
            );
            store.call(["list"]).expect(0);
        });
    }
}

#[test]
fn a_c_project_is_built_and_committed_to_git_in_nested_runs() {
    let test = "a_c_project_is_built_and_committed_to_git_in_nested_runs";
    if !tools_present(test, &["cc", "make", "git"]) {
        return;
    }
    let prepare = r#"
        mkdir src
        for i in 1 2 3; do echo "int f$i(void) { return $i; }" > src/f$i.c; done
        echo 'int f1(void), f3(void); int main(void) { return f1() + f3() - 4; }' > src/main.c
        printf 'prog: $(patsubst src/%%.c,obj/%%.o,$(wildcard src/*.c))\n\tcc -o $@ $^\n' > Makefile
        printf 'obj/%%.o: src/%%.c\n\tmkdir -p obj; cc -c -o $@ $<\n' >> Makefile
    "#;
    Fixture::for_each_view("nest-build", prepare, |one, view| {
        let outcome = one.store.run_with(
            &["--view", view],
            &script(
                r#"
                git() { command git -c user.name=me -c user.email=me@here "$@"; }
                git init -q; echo /obj > .gitignore; git add -A; git commit -qm one
                $A run -q -- make -s -j2
                ./prog
                $A run -q -- sh -ec 'sed -i "s/3;/3 + 0;/" src/f3.c; make -s'
                ./prog; make -q prog
                $A run -q -- sh -c 'rm -rf src obj .git; exit 1' && exit 1
                $A run -q -- git -c user.name=me -c user.email=me@here commit -qam two
                $A run -q -- sh -ec 'make -s; rm -r obj prog'
                "#,
            ),
        );
        outcome.expect(0);
        let check = "git fsck --strict && git log --oneline | wc -l && ls";
        let mut command = Command::new("sh");
        one.store.user().dress(&mut command);
        command.args(["-ec", check]).current_dir(&one.base);
        let text = capture_output(&mut command).expect(0).text();
        assert_eq!(text, "2\nMakefile\nsrc\n", "{view}");
    });
}

/// In a native view programs of the outer transaction can change names while another is nested in it.
#[test]
fn changes_of_both_sides_in_a_native_view_conflict_where_they_meet() {
    let prepare = "mkdir d; echo a > d/a; echo b > d/b; ln d/b hard";
    let fixture = Fixture::new("nest-native-meet", prepare);
    let outcome = fixture.store.run_with(
        &["--view", "native"],
        &script(
            r#"
            both() {
                nested=$($A begin | head -n 1)
                $A exec $nested -- sh -ec "$1"
                sh -ec "$2"
                $A commit -q $nested && return
                test $? = 75
                $A abort -q $nested
                return 1
            }
            ! both 'echo nested > d/new' 'echo outer > d/new'
            ! both 'rm -r d' 'echo outer > d/newer'
            ! both 'echo nested >> hard' 'echo outer >> d/b'
            ! both 'mv d e' 'rm d/a'
            ! both 'chmod 700 d' 'chmod 711 d'
            both 'echo nested > d/one; echo nested >> hard' 'echo outer > d/two'
            both 'mv d e' 'echo outer > beside'
            "#,
        ),
    );
    outcome.expect(0);
    assert_eq!(read(fixture.base.join("e/one")), "nested\n");
    assert_eq!(read(fixture.base.join("e/two")), "outer\n");
    assert_eq!(read(fixture.base.join("hard")), "b\nouter\nnested\n");
    fixture.store.assert_at_rest();
}
