//! Opening a store, which is recovering it: there is no other way to get a [`Store`].

use atomdir_disk::{Access, Disk, Name};

use crate::control::id_supply::IdSupply;
use crate::control::log_elsewhere::LogAt;
use crate::control::trial;
use crate::error::StoreError;
use crate::options::Options;
use crate::recovery::{Recovery, control_files, recover};
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Opens the store for this process alone and recovers it.
    /// `hidden`: the control directory's name, if it lies in the root.
    pub fn open(
        disk: D,
        root: D::Handle,
        control: D::Handle,
        hidden: Option<Name>,
        options: Options,
    ) -> Result<(Store<D>, Recovery), StoreError> {
        Store::open_with_log(disk, root, (control, LogAt::Inside), hidden, options)
    }

    /// Like [`Store::open`], for a store whose log may be elsewhere: see [`Store::log_path`].
    pub fn open_with_log(
        disk: D,
        root: D::Handle,
        (control, log): (D::Handle, LogAt<D>),
        hidden: Option<Name>,
        options: Options,
    ) -> Result<(Store<D>, Recovery), StoreError> {
        let status = disk.status(&root);
        let status = status.map_err(|errno| StoreError::Control {
            step: "examine",
            errno,
        })?;
        if status.read_only {
            return Err(StoreError::ReadOnly);
        }
        trial::require_upper(&disk, &status, &control)?;
        let opened = control_files::open(&disk, &root, (control, &log), Access::ReadWrite)?;
        let last_id = opened.header.transaction_high_water;
        let (core, state, recovery, survivors) = recover(disk, root, opened, hidden, options)?;
        let ids = IdSupply::new(last_id, state.journal.header.transaction_high_water);
        let store = Store::new(core, state, ids);
        store.open_survivors(survivors);
        Ok((store, recovery))
    }
}
