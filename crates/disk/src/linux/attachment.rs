//! Identifies the present boot and the disk under a file system. Mounts say nothing of it: every
//! mount namespace has mounts of its own, a bind mount is another mount, and device numbers change
//! when a disk is attached again and are then used for others.

use std::ffi::CStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat};
use rustix::io::retry_on_intr;
use rustix::ioctl::{Getter, ioctl, opcode};

use crate::{Attachment, Result};

/// `struct btrfs_ioctl_fs_info_args`, which begins with two numbers and the file system's id.
type BtrfsInformation = [u64; 128];
const BTRFS_IOC_FS_INFO: rustix::ioctl::Opcode = opcode::read::<BtrfsInformation>(0x94, 31);
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683e;

pub(super) fn of(object: &OwnedFd) -> Result<Option<Attachment>> {
    let disk = disk(object)?;
    Ok(boot().map(|boot| Attachment { boot, disk }))
}

/// The kernel's random number for this boot, or `None` without `/proc`.
fn boot() -> Option<[u8; 16]> {
    static BOOT: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = read(Path::new("/proc/sys/kernel/random/boot_id"))?;
        let digits = text.trim().replace('-', "");
        u128::from_str_radix(&digits, 16)
            .ok()
            .map(u128::to_le_bytes)
    })
}

/// The number of the disk, or the highest one if the file system has several. A disk that is
/// attached again gets a number that is higher than all before.
fn disk(object: &OwnedFd) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = retry_on_intr(|| rustix::fs::statx(object, c"", flags, StatxFlags::empty()))?;
    if stat.stx_dev_major != 0 {
        let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
        return Ok(number(&Path::new("/sys/dev/block").join(device)));
    }
    let kind = retry_on_intr(|| rustix::fs::fstatfs(object))?.f_type;
    #[expect(clippy::cast_sign_loss, reason = "a number of 32 bits")]
    let is_btrfs = kind as u64 == BTRFS_SUPER_MAGIC;
    Ok(if is_btrfs { btrfs_disks(object) } else { 0 })
}

/// 0 where `/sys` does not show the device.
fn number(device: &Path) -> u64 {
    // A partition has the number of its disk.
    let of = |path: PathBuf| read(&path)?.trim().parse().ok();
    let number = of(device.join("diskseq"));
    number
        .or_else(|| of(device.join("../diskseq")))
        .unwrap_or(0)
}

fn btrfs_disks(object: &OwnedFd) -> u64 {
    // SAFETY: the kernel writes this structure for this number, and any bytes are numbers.
    let getter = unsafe { Getter::<BTRFS_IOC_FS_INFO, BtrfsInformation>::new() };
    // SAFETY: a getter has no other effect.
    let Ok(information) = (unsafe { ioctl(object, getter) }) else {
        return 0;
    };
    let mut id = String::new();
    for (count, byte) in information[2..4]
        .iter()
        .flat_map(|half| half.to_ne_bytes())
        .enumerate()
    {
        let dash = if matches!(count, 4 | 6 | 8 | 10) {
            "-"
        } else {
            ""
        };
        let _ = write!(id, "{dash}{byte:02x}");
    }
    let devices = Path::new("/sys/fs/btrfs").join(id).join("devices");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = openat(CWD, &devices, flags, Mode::empty()) else {
        return 0;
    };
    let Ok(names) = rustix::fs::Dir::read_from(&listed) else {
        return 0;
    };
    let names = names.filter_map(|entry| Some(entry.ok()?.file_name().to_owned()));
    let path = |name: &CStr| Some(devices.join(name.to_str().ok()?));
    let disks = names.filter_map(|name| path(&name).filter(|_| !name.to_bytes().starts_with(b".")));
    disks.map(|disk| number(&disk)).max().unwrap_or(0)
}

fn read(path: &Path) -> Option<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let count = retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    Some(str::from_utf8(&text[..count]).ok()?.to_owned())
}
