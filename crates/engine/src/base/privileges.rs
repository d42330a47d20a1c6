//! Privileges that the kernel takes from a file when an ordinary user writes to it: the
//! rights that a program gets when it is run from the file.

/// Set by setcap(8). Linux also removes it when root writes to the file.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Both.
pub(crate) const SET_ID: u32 = SET_USER_ID | SET_GROUP_ID;
const GROUP_EXECUTE: u32 = 0o010;

/// The mode without these bits. The set-group-id bit stays on a file that its group may
/// not execute, where it gives no right.
pub(crate) fn without_set_id(mode: u32) -> u32 {
    let group = match mode & GROUP_EXECUTE {
        0 => 0,
        _ => SET_GROUP_ID,
    };
    mode & !SET_USER_ID & !group
}
