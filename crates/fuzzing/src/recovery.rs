//! Recovery of a store whose log holds any bytes.

use std::sync::OnceLock;

use atomdir_sim::{AtRest, workloads};

use crate::format::fit_checksums;

/// The log gets fitting checksums, so that its records are accepted. Inspection and recovery must
/// come to an end, and inspection must report the damage that recovery meets.
pub fn recovery(bytes: &[u8]) {
    static STORE: OnceLock<AtRest> = OnceLock::new();
    let store = STORE.get_or_init(|| AtRest::after(&workloads::kinds()[0], false));
    let log = fit_checksums(bytes);
    if let Err(reason) = store.open_with("log", &log) {
        panic!("{reason}");
    }
}
