//! File systems in loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, shell};

/// A loop device with this file system, mounted.
pub struct LoopDevice {
    pub device: String,
    pub point: PathBuf,
}

impl LoopDevice {
    /// The image is made by this command, and the mount point has this name. `None`: there is no loop
    /// device to be had.
    #[track_caller]
    pub fn new(scratch: &Scratch, name: &str, make: &str, megabytes: u64) -> Option<LoopDevice> {
        let script = format!(
            "truncate -s {megabytes}M {name}.image; {make} {name}.image > {name}.made; mkdir {name}
             losetup --find --show {name}.image || echo refused"
        );
        let device = shell(scratch.path(), &script).text().trim().to_owned();
        if device.ends_with("refused") {
            return None;
        }
        let point = scratch.join(name);
        let made = LoopDevice { device, point };
        made.mount();
        Some(made)
    }

    pub fn mount(&self) {
        let script = format!("mount {} {}", self.device, self.point.display());
        shell(Path::new("/"), &script);
    }

    pub fn unmount(&self) {
        let script = format!("until umount {}; do sleep 0.1; done", self.point.display());
        shell(Path::new("/"), &script);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let script = format!(
            "umount -R {point} || umount -l {point}; losetup -d {device}",
            point = self.point.display(),
            device = self.device
        );
        let _ = Command::new("sh").args(["-c", &script]).status();
    }
}
