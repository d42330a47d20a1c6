//! Files that programs outside have open for writing, have mapped or have locked while commits
//! change them. They stay the files that these programs use.

#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, Guard, Usage, Using, for_each_owner, shell, skip, tools_present};

/// What a transaction does to `$f`.
const CHANGES: [(&str, &str); 7] = [
    ("append", "echo appended >> $f"),
    (
        "overwrite",
        "printf X | dd of=$f bs=1 seek=200000 conv=notrunc status=none",
    ),
    ("anew", "echo new contents > $f"),
    ("copy", "cp ../same $f"),
    ("cut", "truncate -s 5000 $f"),
    ("mode", "chmod 600 $f"),
    ("touched", "touch -d 2001-02-03 $f"),
];

fn files() -> Vec<(Usage, String)> {
    let usages = Usage::ALL.into_iter();
    let files =
        usages.flat_map(|usage| CHANGES.map(|(change, _)| (usage, format!("{usage:?}-{change}"))));
    files.collect()
}

/// Changes each file below `directory`.
fn script(directory: &str) -> String {
    let loops = CHANGES.map(|(name, change)| format!("for f in *-{name}; do {change}; done\n"));
    format!("set -e; cd {directory}\n{}", loops.concat())
}

fn prepare() -> String {
    let files = files().into_iter();
    let files: String = files
        .map(|(_, file)| format!("cp same d/{file}\n"))
        .collect();
    format!("mkdir d; head -c 300000 /dev/zero | tr '\\0' x > same; {files}")
}

#[test]
fn files_in_use_keep_their_inodes_in_each_view() {
    let test = "files_in_use_keep_their_inodes_in_each_view";
    for durability in ["durable", "lazy"] {
        for_each_owner(test, |owner| {
            for view in ["exact", "native"] {
                let fixture = Fixture::owned_by("in-use", owner, &prepare());
                check(&fixture, view, durability);
                fixture.store.assert_at_rest();
            }
        });
    }
}

#[test]
fn files_in_use_keep_their_inodes_under_a_guard() {
    let test = "files_in_use_keep_their_inodes_under_a_guard";
    for durability in ["durable", "lazy"] {
        for view in ["exact", "native"] {
            let fixture = Fixture::new("in-use", &prepare());
            let Some(guard) = Guard::mount(test, &fixture) else {
                return;
            };
            check(&fixture, view, durability);
            drop(guard);
            fixture.store.assert_at_rest();
        }
    }
}

fn check(fixture: &Fixture, view: &str, durability: &str) {
    let directory = fixture.base.join("d");
    shell(&fixture.base, "cp -a . ../before; cp -a . ../expected");
    shell(&fixture.scratch.join("expected"), &script("d"));
    let inodes = |file: &str| {
        let found = fs::metadata(directory.join(file));
        found.expect("it is there").ino()
    };
    let mut users: Vec<(Usage, String, u64, Using)> = Vec::new();
    for (usage, file) in files() {
        let using = Using::begin(usage, &directory.join(&file));
        let inode = inodes(&file);
        users.push((usage, file, inode, using));
    }
    let store = &fixture.store;
    let options = ["--view", view, "--durability", durability];
    store.run_with(&options, &script("d")).expect(0);
    store.call(["sync"]).expect(0);
    // A recovery must leave the files as they are. A guard ends with its service, and then nobody
    // has anything open in it.
    if !Guard::is_over(fixture) {
        store.kill_service();
        store.call(["sync"]).expect(0);
    }
    let same = |other: &str, when: &str| {
        shell(&fixture.base, &format!("diff -r d ../{other}/d"));
        for (usage, file, inode, _) in &users {
            let case = format!("{view}, {durability}, {when}: {file}");
            if usage.needs_inode() {
                assert_eq!(inodes(file), *inode, "{case}");
            }
            let modes = [&directory, &fixture.scratch.join(other).join("d")].map(|above| {
                let found = fs::metadata(above.join(file));
                found.expect("it is there").mode()
            });
            assert_eq!(modes[0], modes[1], "{case}");
        }
    };
    same("expected", "after the commit");
    store.call(["undo", "1"]).expect(0);
    same("before", "after the undo");
    for (usage, file, _, using) in &mut users {
        let path = directory.join(&*file);
        assert_eq!(using.has(&path), usage.needs_inode(), "{view}: {file}");
    }
}

/// An undo brings the inode back that the commit has replaced. By then a program uses the new one.
#[test]
fn undo_that_would_replace_a_file_in_use_is_a_conflict() {
    let test = "undo_that_would_replace_a_file_in_use_is_a_conflict";
    Fixture::for_each_view(test, "echo old > log", |fixture, view| {
        undo_in_use(fixture, view, "1");
        if fixture.store.user().is_root()
            && let Some(_guard) = Guard::mount(test, fixture)
        {
            undo_in_use(fixture, view, "2");
        }
    });
}

fn undo_in_use(fixture: &Fixture, view: &str, commit: &str) {
    let path = fixture.base.join("log");
    let store = &fixture.store;
    store
        .run_with(&["--view", view], "echo new > log")
        .expect(0);
    let mut using = Using::begin(Usage::Append, &path);
    let refused = store.call(["undo", commit]);
    refused
        .expect(CONFLICT)
        .says(&["log: ", "open for writing or locked"]);
    assert!(using.has(&path));
    store.call(["abort", "--all"]).expect(0);
}

/// The first store changes the file's times, and later ones to the same page do not.
#[test]
fn stores_to_changed_mapped_pages_are_conflicts() {
    let test = "stores_to_changed_mapped_pages_are_conflicts";
    Fixture::for_each_view(test, "head -c 4096 /dev/zero > file", |fixture, view| {
        let path = fixture.base.join("file");
        if is_in_memory(&path) {
            return skip(test, "the file system is only in memory");
        }
        let using = Using::begin(Usage::Mapped, &path);
        using.store(b"one");
        let refused = fixture.run_and_meanwhile(&["--view", view], "cat file > /dev/null", || {
            using.store(b"two")
        });
        // Nothing was written.
        refused.expect(0);
        let script = "cat file > /dev/null; printf mine > file";
        let refused =
            fixture.run_and_meanwhile(&["--view", view], script, || using.store(b"three"));
        refused.expect(CONFLICT).says(&["file: its contents"]);
        let found = fs::read(&path).expect("it is there");
        assert!(found.starts_with(b"three"));
        fixture.store.call(["abort", "--all"]).expect(0);
    });
}

fn is_in_memory(path: &Path) -> bool {
    let kind = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(path)
        .output();
    kind.expect("it runs").stdout.starts_with(b"tmpfs")
}

/// A program that keeps a database open.
struct Sqlite {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Sqlite {
    fn open(fixture: &Fixture) -> Sqlite {
        let mut command = Command::new("sqlite3");
        fixture.store.user().dress(&mut command);
        let mut process = command
            .args(["-batch", "app.db"])
            .current_dir(&fixture.base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = process.stdin.take().expect("it is a pipe");
        let output = process.stdout.take().expect("it is a pipe");
        let output = BufReader::new(output);
        Sqlite {
            process,
            input,
            output,
        }
    }

    fn ask(&mut self, statement: &str) -> Vec<String> {
        let asked = writeln!(self.input, "{statement};\n.print end");
        asked.and_then(|()| self.input.flush()).expect("it reads");
        let mut answer = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("it answers");
            assert!(count > 0, "it has ended after {answer:?}");
            match line.trim_end() {
                "end" => return answer,
                line => answer.push(line.to_owned()),
            }
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn database_that_a_program_has_open_is_migrated_in_place() {
    let test = "database_that_a_program_has_open_is_migrated_in_place";
    if !tools_present(test, &["sqlite3"]) {
        return;
    }
    let prepare = "sqlite3 app.db 'create table t(x); insert into t values(1)'";
    Fixture::for_each_view(test, prepare, |fixture, view| {
        let mut application = Sqlite::open(fixture);
        assert_eq!(application.ask("select count(*) from t"), ["1"]);
        let inode = || {
            let found = fs::metadata(fixture.base.join("app.db"));
            found.expect("it is there").ino()
        };
        let before = inode();
        let migrate = "sqlite3 app.db 'alter table t add y; insert into t values(2, 2)'";
        fixture.store.run_with(&["--view", view], migrate).expect(0);
        assert_eq!(inode(), before);
        assert_eq!(application.ask("insert into t(x, y) values(3, 3)"), [""; 0]);
        assert_eq!(application.ask("select sum(x), sum(y) from t"), ["6|5"]);
        drop(application);
        let sums = "test \"$(sqlite3 app.db 'select sum(x), sum(y) from t')\" = '6|5'";
        shell(&fixture.base, sums);
        shell(
            &fixture.base,
            "test \"$(sqlite3 app.db 'pragma integrity_check')\" = ok",
        );
    });
}

/// Whatever a program outside is doing with a database while a transaction changes it: either the
/// transaction conflicts, or the program sees the change, and nothing of both is lost.
#[test]
fn no_write_to_a_database_is_lost() {
    let test = "no_write_to_a_database_is_lost";
    if !tools_present(test, &["sqlite3"]) {
        return;
    }
    for journal in ["delete", "wal"] {
        let prepare = format!(
            "sqlite3 app.db 'pragma journal_mode={journal}; create table t(x); insert into t values(1)' \
             > /dev/null; echo old > other"
        );
        for_each_owner(test, |owner| {
            for outside in [Outside::Idle, Outside::Reading, Outside::Writing] {
                for view in ["auto", "exact", "native"] {
                    for work in DATABASE_WORK {
                        let fixture = Fixture::owned_by("database-in-use", owner, &prepare);
                        let case = format!("{journal}, {outside:?}, {view}: {work}");
                        check_database(&fixture, view, work, outside, &case);
                    }
                }
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// It has read the database and has it in its cache.
    Idle,
    /// It is in the middle of reading.
    Reading,
    /// It has begun to write.
    Writing,
}

/// All of them change the first row to 100. The last leaves the files beside the database.
const DATABASE_WORK: [&str; 3] = [
    "sqlite3 app.db 'update t set x = 100 where x = 1'",
    "sqlite3 app.db 'alter table t add y; create table u(a); update t set x = 100 where x = 1'",
    "sqlite3 app.db 'update t set x = 100 where x = 1' '.system kill -9 $PPID' || true",
];

#[test]
fn no_write_to_a_database_is_lost_under_a_guard() {
    let test = "no_write_to_a_database_is_lost_under_a_guard";
    if !tools_present(test, &["sqlite3"]) {
        return;
    }
    let prepare = "sqlite3 app.db 'create table t(x); insert into t values(1)'; echo old > other";
    for outside in [Outside::Idle, Outside::Reading, Outside::Writing] {
        for view in ["exact", "native"] {
            for work in DATABASE_WORK {
                let fixture = Fixture::new("database-in-use", prepare);
                let Some(_guard) = Guard::mount(test, &fixture) else {
                    return;
                };
                let case = format!("{outside:?}, {view}: {work}");
                check_database(&fixture, view, work, outside, &case);
            }
        }
    }
}

fn check_database(fixture: &Fixture, view: &str, work: &str, outside: Outside, case: &str) {
    let mut application = Sqlite::open(fixture);
    assert_eq!(application.ask("select x from t"), ["1"], "{case}");
    if outside == Outside::Reading {
        assert_eq!(application.ask("begin; select x from t"), ["1"], "{case}");
    }
    if outside == Outside::Writing {
        let begun = application.ask("begin immediate; insert into t(x) values(2)");
        assert_eq!(begun, [""; 0], "{case}");
    }
    let ended = fixture.store.run_with(&["--view", view], work);
    match outside {
        Outside::Idle | Outside::Reading => {
            let may_conflict = case.starts_with("wal") && view == "native";
            let code = if may_conflict && ended.code != 0 {
                CONFLICT
            } else {
                0
            };
            assert_eq!(ended.code, code, "{case}: {ended}");
            if outside == Outside::Reading {
                application.ask("commit");
            }
            application.ask("insert into t(x) values(2)");
        }
        Outside::Writing => {
            // The database's program may have failed already.
            assert_ne!(ended.code, 0, "{case}: {ended}");
            application.ask("commit");
        }
    }
    let first = if ended.code == 0 { "100" } else { "1" };
    let sum = "select x from t order by x desc";
    let rows = match first {
        "1" => ["2", "1"],
        first => [first, "2"],
    };
    assert_eq!(application.ask(sum), rows, "{case}: {ended}");
    drop(application);
    let check = format!("sqlite3 app.db 'pragma integrity_check; {sum}'");
    let found = shell(&fixture.base, &check).text();
    assert_eq!(found, format!("ok\n{}\n{}\n", rows[0], rows[1]), "{case}");
    fixture.store.call(["abort", "--all", "--quiet"]).expect(0);
}
