//! The extension, and the Python programs that use it.

use atomdir_testing::{User, binary, capture_output, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Appended to a database's name: opens it through the service.
pub(crate) const SERVICE: &str = "&door=service";

/// Debian's own Python. Others often cannot load extensions.
const PYTHON: &str = "/usr/bin/python3";

/// The path of the extension. Builds it once, with the profile of these tests, unless `./test` has
/// built the whole workspace.
pub(crate) fn extension() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = binary().parent().expect("it is in a directory").to_owned();
        let library = folder.join("libatomdir_sqlite.so");
        if std::env::var_os("ATOMDIR_BUILT").is_some() {
            return library;
        }
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
        library
    })
}

/// A command that runs one of `tests/programs`. Its own arguments are to be added.
pub(crate) fn program(user: &User, program: &str, store: &Path) -> Command {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut command = Command::new(PYTHON);
    user.dress(&mut command);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir("/").arg(programs.join(program));
    command.arg(extension()).arg(store);
    command
}

pub(crate) fn python(user: &User, program: &str, store: &Path, more: &[&str]) -> String {
    capture_output(self::program(user, program, store).args(more))
        .expect(0)
        .text()
}

pub(crate) fn python_loads_extensions(test: &str) -> bool {
    let asks = "import sqlite3; sqlite3.Connection.enable_load_extension";
    let answer = Command::new(PYTHON).args(["-c", asks]).output();
    let loads = answer.is_ok_and(|output| output.status.success());
    if !loads {
        skip(test, "no python3 whose sqlite3 loads extensions");
    }
    loads
}
