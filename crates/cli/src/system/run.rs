//! What a command needs that changes the whole system.

use super::Mark;
use super::SystemArguments;
use super::held::{Asked, Held};
use super::packages::{PackagesLocked, lock_files};
use crate::attempt::Way;
use crate::context::Context;
use crate::enter::{Around, Tree};
use crate::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

/// systemctl then changes files only, and does not talk to the running systemd, which does not see the
/// view.
const OFFLINE: &str = "SYSTEMD_OFFLINE";

/// A run of `run --system`.
pub struct OfSystem {
    pub mark: Mark,
    roots: Vec<PathBuf>,
    /// Where the command may change nothing.
    read_only: Vec<PathBuf>,
    held: Option<Held>,
    asked: Asked,
    /// Nobody else begins to install packages before the command does, nor before its commit.
    packages: Option<PackagesLocked>,
}

impl OfSystem {
    /// `stores` is the context of the system's stores, `context` the caller's.
    pub fn new(
        stores: &Context,
        context: &Context,
        arguments: &SystemArguments,
    ) -> Result<OfSystem, Error> {
        let first = stores.directory().to_owned();
        let roots: Vec<PathBuf> = [&[first], stores.others()].concat();
        Ok(OfSystem {
            mark: Mark::new()?,
            packages: Some(PackagesLocked::take(&roots)?),
            read_only: arguments.outside(context, &roots)?,
            roots,
            held: None,
            asked: Asked::new(),
        })
    }

    /// Holds services back, and returns what to add to the command's environment. `view` is that of the
    /// first store.
    pub fn prepare(
        &mut self,
        view: &Tree,
        way: &mut Way,
    ) -> Result<Vec<(&'static str, OsString)>, Error> {
        let roots: Vec<_> = self.roots.iter().map(PathBuf::as_path).collect();
        let files = lock_files(&self.roots);
        let around = Around::of_stores(&roots, files, self.read_only.clone());
        way.around = around.map_err(|errno| Error::Directory {
            directory: self.roots[0].clone(),
            errno,
        })?;
        self.packages = None;
        self.asked.clear();
        self.held = Held::place(view)?;
        Ok(vec![(OFFLINE, OsString::from("1"))])
    }

    /// Takes away what [`OfSystem::prepare`] has put into the view, when the command has ended.
    pub fn clear(&mut self, view: &Tree) -> Result<(), Error> {
        if let Some(held) = self.held.take() {
            self.asked = held.take(view)?;
        }
        self.packages = Some(PackagesLocked::take(&self.roots)?);
        Ok(())
    }

    /// Says after the commit what is left to do.
    pub fn report(&self, context: &Context) {
        if let Err(error) = super::report(context, self.mark, &self.asked) {
            let output = &context.output;
            output.warn(format_args!(
                "committed, but there is no report of it: {error}"
            ));
        }
    }
}
