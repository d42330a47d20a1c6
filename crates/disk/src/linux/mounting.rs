//! Identifies the present boot and mount.

use std::sync::OnceLock;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat};
use rustix::io::retry_on_intr;

use crate::{Mounting, Result};

/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8. The older id is used again after a
/// file system is unmounted, and its device may have crashed in between.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

pub(super) fn of(object: &OwnedFd) -> Result<Option<Mounting>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = retry_on_intr(|| rustix::fs::statx(object, c"", flags, MNT_ID_UNIQUE))?;
    if stat.stx_mask & MNT_ID_UNIQUE.bits() == 0 {
        return Ok(None);
    }
    let mount = stat.stx_mnt_id;
    Ok(boot().map(|boot| Mounting { boot, mount }))
}

/// The kernel's random number for this boot, or `None` without `/proc`.
fn boot() -> Option<[u8; 16]> {
    static BOOT: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let path = c"/proc/sys/kernel/random/boot_id";
        let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 64];
        let count = retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
        let digits = str::from_utf8(&text[..count]).ok()?.trim().replace('-', "");
        u128::from_str_radix(&digits, 16)
            .ok()
            .map(u128::to_le_bytes)
    })
}
