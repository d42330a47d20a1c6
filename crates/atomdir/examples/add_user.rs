//! Adds a user to `passwd`, `shadow` and `group` in a directory that is a store:
//!
//!     add_user /srv/accounts ann 1001
//!
//! The three files change in one commit. A reader of the directory, and whoever comes after a
//! crash, finds the user in all of them or in none. If another program adds a user at the same
//! time, the transaction runs again, so neither is lost. Without transactions this takes a lock
//! file that all programs must honour, three temporary files, four flushes and three renames, and
//! a kill between two renames leaves a user without a password entry.

use atomdir::{Error, Store, Transaction};
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
        let passwd = format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh");
        add_line(tx, "passwd", name, Some(id), &passwd)?;
        add_line(tx, "shadow", name, None, &format!("{name}:!:::::::"))?;
        add_line(tx, "group", name, Some(id), &format!("{name}:x:{id}:"))
    })?;
    store.close()?;
    Ok(())
}

/// Appends a line, unless one has the name or the id. The file keeps its owner and mode.
fn add_line(
    tx: &Transaction,
    file: &str,
    name: &str,
    id: Option<u32>,
    line: &str,
) -> Result<(), Error> {
    let mut lines = tx.read_to_string(file)?;
    for known in lines.lines() {
        let mut fields = known.split(':');
        let has_name = fields.next() == Some(name);
        let known_id = fields.nth(1).and_then(|id| id.parse().ok());
        if has_name || (id.is_some() && id == known_id) {
            return Err(Error::other(format!(
                "{file} already has the line '{known}'"
            )));
        }
    }
    lines.push_str(line);
    lines.push('\n');
    Ok(tx.write(file, lines)?)
}
