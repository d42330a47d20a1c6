//! The view's first looks at the base, which *settle*: if a commit that the snapshot shows is still
//! on its way to the base and changes what is looked at, it is brought there first. The invariants
//! are those of `base::on_the_way`.

use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, Result, Stat};

use crate::base::Base;
use crate::base::on_the_way::OnTheWay;
use crate::base::snapshot::Found;
use crate::view::View;

impl<D: Disk> View<D> {
    pub(super) fn settled_lookup(
        &self,
        directory: &Arc<Base>,
        name: &Name,
    ) -> Result<Option<Found>> {
        self.settling(|| {
            if self.waits(|way| way.changes_entry(directory.serial, name, self.at)) {
                return Ok(None);
            }
            let mut found = self.snapshot().lookup(directory, name)?;
            if let Some(found) = &mut found {
                if self.waits(|way| way.changes(found.base.serial, self.at)) {
                    return Ok(None);
                }
                self.add_entries(&found.base, &mut found.stat);
            }
            Ok(Some(found))
        })
    }

    pub(crate) fn settled_stat(&self, base: &Arc<Base>) -> Result<Stat> {
        self.settling(|| {
            if self.waits(|way| way.changes(base.serial, self.at)) {
                return Ok(None);
            }
            let mut stat = self.snapshot().stat(base)?;
            self.add_entries(base, &mut stat);
            Ok(Some(stat))
        })
    }

    pub(super) fn settled_list(&self, directory: &Arc<Base>) -> Result<Vec<(Name, u64, Kind)>> {
        self.settling(
            || match self.waits(|way| way.changes_listing(directory.serial, self.at)) {
                true => Ok(None),
                false => self.snapshot().list(directory).map(Some),
            },
        )
    }

    /// Before anything else of a base object is read than its attributes. Only the root can be
    /// reached without a lookup.
    pub(super) fn settle_object(&self, base: &Arc<Base>) -> Result<()> {
        let waits = || self.waits(|way| way.changes(base.serial, self.at));
        self.settling(|| Ok((!waits()).then_some(())))
    }

    fn add_entries(&self, base: &Base, stat: &mut Stat) {
        if base.kind == Kind::Directory {
            self.core.on_the_way.add_entries(base.serial, self.at, stat);
        }
    }

    fn waits(&self, changes: impl FnOnce(&OnTheWay) -> bool) -> bool {
        !self.is_validated && changes(&self.core.on_the_way)
    }

    /// `look` returns `None` if a commit that is on its way changes what it looks at.
    fn settling<T>(&self, look: impl Fn() -> Result<Option<T>>) -> Result<T> {
        loop {
            let turns = self.core.turns();
            let is_early = self.core.on_the_way.is_shown_at(self.at);
            match look()? {
                None => self.core.on_the_way.settle()?,
                // Otherwise a commit may have reached the base between two parts of the look.
                Some(seen) if !is_early || self.core.turns() == turns => return Ok(seen),
                Some(_) => {}
            }
        }
    }
}
