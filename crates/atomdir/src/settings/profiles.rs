//! The file `profiles` in a store's control directory: which programs run in transactions without
//! being asked to. Everybody whom the store admits may read it. What its lines mean is the command's.

use super::file::{TextFile, open_control};
use super::{SettingsError, require_owner};
use crate::StoreLocation;
use rustix::fs::{Mode, OFlags};

const FILE: TextFile = TextFile {
    name: "profiles",
    name_new: "profiles.new",
    mode: Mode::RUSR
        .union(Mode::WUSR)
        .union(Mode::RGRP)
        .union(Mode::ROTH),
};

/// Reads the text of a store's profiles; empty if it has none.
pub fn profiles(store: &StoreLocation) -> Result<String, SettingsError> {
    let control = open_control(store, OFlags::PATH)?;
    FILE.read(&control).map_err(|error| match error.of(store) {
        SettingsError::Io { store, errno, .. } => SettingsError::Io {
            store,
            operation: "read the profiles among",
            errno,
        },
        other => other,
    })
}

/// Replaces the text of a store's profiles; the caller must be the store's owner or root.
pub fn change_profiles(store: &StoreLocation, text: &str) -> Result<(), SettingsError> {
    require_owner(store)?;
    FILE.change(store, text)
}
