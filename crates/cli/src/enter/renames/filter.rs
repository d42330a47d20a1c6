//! The filter that makes the kernel ask about renames.
//!
//! What runs between fork and exec makes only system calls.

use rustix::io::Errno;
use std::os::fd::{FromRawFd, OwnedFd};

#[cfg(target_arch = "x86_64")]
mod here {
    /// AUDIT_ARCH_X86_64
    pub const ARCHITECTURE: u32 = 0xc000_003e;
    pub const CALLS: [libc::c_long; 5] = [
        libc::SYS_renameat2,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_link,
        libc::SYS_linkat,
    ];
}

#[cfg(not(target_arch = "x86_64"))]
mod here {
    /// AUDIT_ARCH_AARCH64. On other architectures the filter lets everything pass.
    pub const ARCHITECTURE: u32 = 0xc000_00b7;
    /// There is no rename(2).
    pub const CALLS: [libc::c_long; 5] = [
        libc::SYS_renameat2,
        libc::SYS_renameat,
        libc::SYS_renameat,
        libc::SYS_linkat,
        libc::SYS_linkat,
    ];
}

/// SECCOMP_FILTER_FLAG_*
const NEW_LISTENER: libc::c_ulong = 1 << 3;
const SPECULATION_ALLOWED: libc::c_ulong = 1 << 2;
/// A signal does not interrupt a call that the helper has begun to perform. Since Linux 5.19.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Offsets in struct seccomp_data.
const CALL_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

const LENGTH: usize = 2 + 1 + here::CALLS.len() + 2;

fn program() -> [libc::sock_filter; LENGTH] {
    let instruction = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |at| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let equals = |k, jt, jf| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    let end = |k| instruction(libc::BPF_RET | libc::BPF_K, k, 0, 0);
    let calls = here::CALLS.len();
    let mut program = [end(libc::SECCOMP_RET_ALLOW); LENGTH];
    program[0] = load(ARCHITECTURE_AT);
    program[1] = equals(here::ARCHITECTURE, 0, calls + 1);
    program[2] = load(CALL_AT);
    for (number, call) in here::CALLS.iter().enumerate() {
        program[3 + number] = equals(*call as u32, calls - number, 0);
    }
    program[LENGTH - 1] = end(libc::SECCOMP_RET_USER_NOTIF);
    program
}

/// Gives this process and its descendants the filter. The kernel's questions arrive at the returned
/// descriptor. Needs the right to mount.
pub(in crate::enter) fn install() -> Result<OwnedFd, Errno> {
    let mut program = program();
    let filter = libc::sock_fprog {
        len: LENGTH as u16,
        filter: program.as_mut_ptr(),
    };
    let flags = NEW_LISTENER | SPECULATION_ALLOWED;
    let install = |flags: libc::c_ulong| {
        let operation = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel reads the filter.
        unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const filter) }
    };
    let mut listener = install(flags | WAIT_KILLABLE);
    if checked(listener) == Err(Errno::INVAL) {
        listener = install(flags);
    }
    checked(listener)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Whether a command of this process can have the filter. A process can have a listener only once, so
/// one that has a filter already tries it in a child.
pub fn check() -> Result<(), Errno> {
    // SAFETY: prctl(2) with this operation takes plain numbers.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } == 0 {
        return Ok(());
    }
    // SAFETY: the child only makes system calls, and does not return.
    match unsafe { libc::fork() } {
        0 => {
            let code = install().map_or_else(Errno::raw_os_error, |_| 0);
            // SAFETY: it runs no handlers, which are the parent's.
            unsafe { libc::_exit(code) }
        }
        child => {
            let child = rustix::process::Pid::from_raw(child).ok_or(Errno::AGAIN)?;
            let options = rustix::process::WaitOptions::empty();
            let ended =
                rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), options))?;
            match ended.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(code) => Err(Errno::from_raw_os_error(code)),
                None => Err(Errno::INTR),
            }
        }
    }
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

/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID.
const FILE_RIGHTS: u32 = 0b1_1111;

/// The command of an ordinary user has no capabilities, though we have those of its namespace.
pub(super) fn give_up_file_rights() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        process: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 of the structures is a header and two sets.
    checked(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    sets[0].effective &= !FILE_RIGHTS;
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) })
}

pub(super) fn checked(result: libc::c_long) -> Result<(), Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
