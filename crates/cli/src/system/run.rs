//! What a command needs that changes the whole system.

use super::Mark;
use super::held::{Asked, Held};
use crate::context::Context;
use crate::enter::Tree;
use crate::error::Error;
use std::ffi::OsString;

/// systemctl then changes files only, and does not talk to the running systemd, which does not see the
/// view.
const OFFLINE: &str = "SYSTEMD_OFFLINE";

/// A run of `run --system`.
pub struct OfSystem {
    pub mark: Mark,
    held: Option<Held>,
    asked: Asked,
}

impl OfSystem {
    pub fn new() -> Result<OfSystem, Error> {
        Ok(OfSystem {
            mark: Mark::new()?,
            held: None,
            asked: Asked::new(),
        })
    }

    /// Holds services back, and returns what to add to the command's environment. `view` is that of the
    /// first store.
    pub fn prepare(&mut self, view: &Tree) -> Result<Vec<(&'static str, OsString)>, Error> {
        self.asked.clear();
        self.held = Held::place(view)?;
        Ok(vec![(OFFLINE, OsString::from("1"))])
    }

    /// Takes away what [`OfSystem::prepare`] has put into the view, when the command has ended.
    pub fn clear(&mut self, view: &Tree) -> Result<(), Error> {
        if let Some(held) = self.held.take() {
            self.asked = held.take(view)?;
        }
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
