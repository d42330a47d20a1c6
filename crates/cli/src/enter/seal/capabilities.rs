//! Takes away the capabilities by which a root process could undo the seal.
//!
//! A command of root's keeps the capabilities to change files as root does: owners, modes, device
//! nodes, file capabilities. It gives up those that lead out of its namespaces. Programs that it
//! starts later cannot get these back, since they are not in the bounding set.

use super::{Errno, checked};

/// Numbers as in capability.h.
const GIVEN_UP: [libc::c_ulong; 9] = [
    2,  // CAP_DAC_READ_SEARCH: open_by_handle_at(2) reaches any file of a file system.
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE: processes outside, and the one that guards the namespace.
    21, // CAP_SYS_ADMIN: mounts and namespaces.
    22, // CAP_SYS_BOOT: kexec_load(2), outside of all namespaces.
    38, // CAP_PERFMON
    39, // CAP_BPF
    40, // CAP_CHECKPOINT_RESTORE
];

/// Takes effect with the next exec. Root of the first user namespace may do
/// this, and so may a user in a namespace of their own.
pub(in crate::enter) fn give_up() -> Result<(), Errno> {
    for capability in GIVEN_UP {
        // SAFETY: prctl(2) with these operations takes plain numbers.
        let is_there = unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) };
        // Older kernels lack some of them.
        if is_there != 1 {
            continue;
        }
        // SAFETY: as above.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        checked(dropped.into())?;
    }
    let ambient = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: as above.
    let cleared = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, ambient, 0, 0, 0) };
    checked(cleared.into())?;
    clear_inheritable()
}

#[repr(C)]
struct Header {
    version: u32,
    process: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Otherwise a program with file capabilities could get them from the inheritable set.
fn clear_inheritable() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        process: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 of the structures is a header and two sets.
    let read = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    checked(read)?;
    for set in &mut sets {
        set.inheritable = 0;
    }
    // SAFETY: as above.
    let written = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    checked(written)
}
