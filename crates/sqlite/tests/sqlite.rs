//! The extension as programs use it: in the sqlite3 shell, and in Python, which runs the programs in
//! `programs/`. A test is skipped where the shell, or a Python that loads extensions, is missing.

use atomdir_testing::{Fixture, User, binary, capture_output, skip, tools_present};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Debian's own: others are often built without extensions.
const PYTHON: &str = "/usr/bin/python3";

/// Built once, with the profile of these tests.
fn extension() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = binary().parent().expect("it is in a directory").to_owned();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev".to_owned(),
            Some(profile) => profile.to_owned(),
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "atomdir-sqlite"]);
        build.args(["--profile", &profile]);
        build.env("CARGO_TARGET_DIR", folder.parent().expect("target"));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        capture_output(&mut build).expect(0);
        folder.join("libatomdir_sqlite.so")
    })
}

fn python(user: &User, program: &str, store: &Path, more: &[&str]) -> String {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut command = Command::new(PYTHON);
    user.dress(&mut command);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir("/").arg(programs.join(program));
    command.arg(extension()).arg(store).args(more);
    capture_output(&mut command).expect(0).text()
}

fn python_loads_extensions(test: &str) -> bool {
    let asks = "import sqlite3; sqlite3.Connection.enable_load_extension";
    let answer = Command::new(PYTHON).args(["-c", asks]).output();
    let loads = answer.is_ok_and(|output| output.status.success());
    if !loads {
        skip(test, "no python3 whose sqlite3 loads extensions");
    }
    loads
}

#[test]
fn the_shell_uses_a_database_that_stays_a_plain_file() {
    let test = "the_shell_uses_a_database_that_stays_a_plain_file";
    if !tools_present(test, &["sqlite3"]) {
        return;
    }
    Fixture::for_each_owner("sqlite-shell", "true", |fixture| {
        let uri = format!("file:{}/db?vfs=atomdir", fixture.base.display());
        let shell = |arguments: &[&str]| {
            let mut command = Command::new("sqlite3");
            fixture.store.user().dress(&mut command);
            capture_output(command.current_dir("/").args(arguments))
        };
        let load = format!(".load {}", extension().display());
        let open = format!(".open {uri}");
        let extended = |statements: &str| shell(&[":memory:", &load, &open, statements]);
        extended("create table t(v); insert into t values(1);").expect(0);
        extended("begin; insert into t values(2); commit;").expect(0);
        extended("begin; insert into t values(3); rollback;").expect(0);
        for refused in [
            "pragma journal_mode = wal",
            "pragma locking_mode = exclusive",
            "pragma page_size = 8192",
        ] {
            let refused = extended(refused).expect(1);
            assert!(refused.error_text().contains("atomdir: "), "{refused:?}");
        }
        let plain = fixture.base.join("db");
        let plain = plain.to_str().expect("UTF-8");
        let found = shell(&[plain, "select v from t; pragma integrity_check;"]);
        assert_eq!(found.expect(0).text(), "1\n2\nok\n");
    });
}

#[test]
fn writers_of_different_pages_commit_and_others_conflict() {
    let test = "writers_of_different_pages_commit_and_others_conflict";
    if !python_loads_extensions(test) {
        return;
    }
    Fixture::for_each_owner("sqlite-conflicts", "true", |fixture| {
        let user = fixture.store.user();
        python(user, "conflicts.py", &fixture.base, &[]);
    });
}
