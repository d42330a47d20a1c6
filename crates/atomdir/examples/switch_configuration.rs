//! Replaces a directory's configuration, many files of it, by another one at once:
//!
//!     switch_configuration /srv/site conf new-conf
//!
//! `/srv/site` is a store, and `new-conf` a directory elsewhere. Whoever reads `conf` in a
//! transaction sees the old configuration or the new one, and so does everybody after a crash. If
//! the new one cannot be read to its end, the old one stays.
//!
//! [`switch_plainly`] is the same without transactions, as careful as it can be: each file is
//! whole, and a kill half-way leaves a mixture of both configurations, and a temporary file.

use atomdir::{Error, Store};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, target, source] = &arguments[..] else {
        eprintln!("usage: switch_configuration STORE DIRECTORY NEW");
        return ExitCode::from(64);
    };
    match switch(Path::new(store), target, Path::new(source)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("switch_configuration: {error}");
            ExitCode::FAILURE
        }
    }
}

pub fn switch(store: &Path, target: &str, source: &Path) -> Result<(), Error> {
    let store = Store::open(store)?;
    store.run(|tx| {
        tx.remove_dir_all(target)?;
        tx.create_dir(target)?;
        for name in names(source)? {
            tx.write(format!("{target}/{name}"), fs::read(source.join(&name))?)?;
        }
        Ok(())
    })?;
    Ok(store.close()?)
}

pub fn switch_plainly(target: &Path, source: &Path) -> io::Result<()> {
    let new = names(source)?;
    for name in &new {
        let temporary = target.join(format!("{name}.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(&fs::read(source.join(name))?)?;
        file.sync_all()?;
        fs::rename(&temporary, target.join(name))?;
    }
    for name in names(target)?.iter().filter(|name| !new.contains(name)) {
        fs::remove_file(target.join(name))?;
    }
    File::open(target)?.sync_all()
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}
