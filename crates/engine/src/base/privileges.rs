//! What the kernel takes from a file that an ordinary user writes: rights that a program
//! has when it is run from the file.

/// Written by setcap(8). Linux also takes it from a file that root writes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The mode that is left. The set-group-id bit means nothing for a file that its group may
/// not execute, and stays there.
pub(crate) fn without_set_id(mode: u32) -> u32 {
    let group = match mode & GROUP_EXECUTE {
        0 => 0,
        _ => SET_GROUP_ID,
    };
    mode & !SET_USER_ID & !group
}
