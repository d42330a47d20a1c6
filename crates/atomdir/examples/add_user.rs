//! Adds a user to `passwd`, `shadow` and `group` in a directory that is a store:
//!
//!     add_user /srv/accounts ann 1001
//!
//! The three files change in one commit. A reader of the directory, and whoever comes after a
//! crash, finds the user in all of them or in none. If another program adds a user at the same
//! time, the transaction runs again, so neither is lost. Without transactions this takes a lock
//! file that all programs must honour, three temporary files, four flushes and three renames
//! (`add_user_plainly`), and a kill between two renames leaves a user without a password entry.

use atomdir::{Error, Store, Transaction};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, name, id] = &arguments[..] else {
        eprintln!("usage: add_user DIRECTORY NAME ID");
        return ExitCode::from(64);
    };
    let added = id
        .parse()
        .map_err(Error::other)
        .and_then(|id| add_user(directory, name, id));
    match added {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("add_user: {error}");
            ExitCode::FAILURE
        }
    }
}

pub fn add_user(directory: &str, name: &str, id: u32) -> Result<(), Error> {
    let store = Store::open(directory)?;
    store.run(|tx| {
        for (file, id, line) in lines_of(name, id) {
            add_line(tx, file, name, id, &line)?;
        }
        Ok(())
    })?;
    store.close()?;
    Ok(())
}

/// The file keeps its owner and mode.
fn add_line(
    tx: &Transaction,
    file: &str,
    name: &str,
    id: Option<u32>,
    line: &str,
) -> Result<(), Error> {
    let lines = with_line(tx.read_to_string(file)?, file, name, id, line);
    Ok(tx.write(file, lines.map_err(Error::other)?)?)
}

/// The same without Atomdir. A kill leaves the lock, which somebody must remove then, and perhaps
/// the user in some of the files.
pub fn add_user_plainly(directory: &Path, name: &str, id: u32) -> io::Result<()> {
    let lock = directory.join("lock");
    File::create_new(&lock)?;
    for (file, id, line) in lines_of(name, id) {
        add_line_plainly(directory, file, name, id, &line)?;
    }
    File::open(directory)?.sync_all()?;
    fs::remove_file(lock)
}

/// The file keeps its mode, and gets this process's owner.
fn add_line_plainly(
    directory: &Path,
    file: &str,
    name: &str,
    id: Option<u32>,
    line: &str,
) -> io::Result<()> {
    let path = directory.join(file);
    let lines = with_line(fs::read_to_string(&path)?, file, name, id, line);
    let temporary = directory.join(format!("{file}.new"));
    let mut new = File::create(&temporary)?;
    new.set_permissions(fs::metadata(&path)?.permissions())?;
    new.write_all(lines.map_err(io::Error::other)?.as_bytes())?;
    new.sync_all()?;
    fs::rename(temporary, path)
}

/// Each file, the id that it must not have yet, and its new line.
fn lines_of(name: &str, id: u32) -> [(&'static str, Option<u32>, String); 3] {
    let passwd = format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh");
    [
        ("passwd", Some(id), passwd),
        ("shadow", None, format!("{name}:!:::::::")),
        ("group", Some(id), format!("{name}:x:{id}:")),
    ]
}

/// Appends a line, unless one has the name or the id.
fn with_line(
    mut lines: String,
    file: &str,
    name: &str,
    id: Option<u32>,
    line: &str,
) -> Result<String, String> {
    for known in lines.lines() {
        let mut fields = known.split(':');
        let has_name = fields.next() == Some(name);
        let known_id = fields.nth(1).and_then(|id| id.parse().ok());
        if has_name || (id.is_some() && id == known_id) {
            return Err(format!("{file} already has the line '{known}'"));
        }
    }
    lines.push_str(line);
    lines.push('\n');
    Ok(lines)
}
