//! `-- PATH...` of the verbs that end a part of a transaction's changes.

use super::{ChangeList, Filter, path_in_store};
use crate::context::Connected;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::client::ChangeLine;
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The paths that the user has named.
pub struct Named {
    pub filter: Filter,
    /// Relative to the store's root.
    pub paths: Vec<Vec<u8>>,
}

impl Named {
    pub fn new(connected: &Connected, paths: &[PathBuf]) -> Result<Named, Error> {
        let outside: Vec<PathBuf> = paths
            .iter()
            .map(|path| connected.out_of_view(path).into_owned())
            .collect();
        Ok(Named {
            filter: Filter::new(&connected.root, &connected.start, &outside)?,
            paths: paths_in_store(connected, paths)?,
        })
    }

    /// All that has changed.
    pub fn everything() -> Named {
        Named {
            filter: Filter::default(),
            paths: vec![Vec::new()],
        }
    }

    /// The changes that went along though they were not named.
    pub fn others(&self, lines: &[ChangeLine]) -> Vec<ChangeLine> {
        let others = lines.iter().filter(|line| !self.filter.wants(line));
        others.cloned().collect()
    }
}

/// Paths of the caller's, relative to the store's root.
pub fn paths_in_store(connected: &Connected, paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, Error> {
    let paths = paths.iter().map(|path| {
        let path = connected.out_of_view(path);
        let path = path_in_store(&connected.root, &connected.start, &path)?;
        Ok(path.into_os_string().into_vec())
    });
    paths.collect()
}

/// The outcome for a part of a transaction's changes.
#[derive(Serialize)]
pub struct PartJson<'a> {
    pub changes: ChangeList<'a>,
    /// Those of them that the user has not named.
    pub together: ChangeList<'a>,
}

/// Says which changes went along.
pub fn show_others(others: &[ChangeLine], painter: &mut Painter<'_>) -> io::Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    writeln!(painter, "together with what belongs to them:")?;
    ChangeList::new(others).show(painter)
}
