//! A guard over a store.

use rustix::process::geteuid;

use crate::{Fixture, mounts, skip, unmount};

/// It is unmounted even if the test fails.
pub struct Guard<'a>(&'a Fixture);

impl<'a> Guard<'a> {
    /// `None`: only root can mount a guard, over a store of root's.
    pub fn mount(test: &str, fixture: &'a Fixture) -> Option<Guard<'a>> {
        if !geteuid().is_root() || !fixture.store.user().is_root() {
            skip(test, "only root can mount a guard");
            return None;
        }
        fixture.store.call(["mount"]).expect(0);
        Some(Guard(fixture))
    }

    pub fn is_over(fixture: &Fixture) -> bool {
        mounts().iter().any(|mount| mount.point == fixture.base)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if Guard::is_over(self.0) {
            unmount(&self.0.base);
        }
    }
}
