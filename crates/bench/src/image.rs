//! A file system of the bench's own, in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::error::{Describe, Result};
use crate::programs::{make_directory, output};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    fn make(self) -> (&'static str, &'static [&'static str]) {
        match self {
            FileSystem::Ext4 => ("mkfs.ext4", &["-q", "-F"]),
            FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        }
    }
}

const IMAGE_BYTES: u64 = 64 << 30;

/// Mounted until this is dropped.
#[derive(Debug)]
pub struct Image {
    pub root: PathBuf,
}

impl Image {
    /// The image is sparse: it takes what is written to it.
    pub fn mount(file_system: FileSystem, directory: &Path) -> Result<Image> {
        let image = directory.join("image");
        let root = root(directory);
        make_directory(&root)?;
        File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .describe("make", &image)?;
        let (program, arguments) = file_system.make();
        output(Command::new(program).args(arguments).arg(&image))?;
        let device = attach(&image)?;
        let mounted = output(Command::new("mount").arg(device.trim()).arg(&root));
        // Once mounted the device goes with the mount; otherwise, now.
        let detached = output(Command::new("losetup").args(["--detach", device.trim()]));
        mounted?;
        detached?;
        Ok(Image { root })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) = output(Command::new("umount").arg(&self.root)) {
            eprintln!("atomdir-bench: {error}");
        }
    }
}

/// Where it is mounted for a run whose own directory this is.
pub fn root(directory: &Path) -> PathBuf {
    directory.join("mounted")
}

/// Direct where that can be, so that the image takes no second place in memory.
fn attach(image: &Path) -> Result<String> {
    let losetup = |direct: &str| {
        let mut command = Command::new("losetup");
        output(command.args(["--find", "--show", direct]).arg(image))
    };
    losetup("--direct-io=on").or_else(|_| losetup("--direct-io=off"))
}
