//! A file system that the bench makes in a file (an image), and mounts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{Describe, Error, Result};
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
/// The length of a disk in memory. All of this memory is used in the end, since blocks that the file
/// system frees keep their contents.
const SLOW_IMAGE_MIB: u64 = 6 << 10;

/// The program that serves a disk in memory with slow flushes.
const SLOW_DISK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sqlite/bench/slow_disk.c");

/// A mounted image. Dropping it unmounts the file system.
#[derive(Debug)]
pub struct Image {
    pub root: PathBuf,
    _disk: Option<SlowDisk>,
}

impl Image {
    /// Makes an image and mounts it. The image is a sparse file. With `flush_us` it is in memory, and
    /// each flush takes so many microseconds longer.
    pub fn mount(
        file_system: FileSystem,
        flush_us: Option<u64>,
        directory: &Path,
    ) -> Result<Image> {
        let root = root(directory);
        make_directory(&root)?;
        let disk = match flush_us {
            Some(flush_us) => Some(SlowDisk::serve(flush_us, directory)?),
            None => None,
        };
        let image = match &disk {
            Some(disk) => disk.image(),
            None => {
                let image = directory.join("image");
                File::create(&image)
                    .and_then(|file| file.set_len(IMAGE_BYTES))
                    .describe("make", &image)?;
                image
            }
        };
        let (program, arguments) = file_system.make();
        output(Command::new(program).args(arguments).arg(&image))?;
        let device = attach(&image)?;
        let mounted = output(Command::new("mount").arg(device.trim()).arg(&root));
        // Detaching takes effect when the file system is unmounted; at once if the mount failed.
        let detached = output(Command::new("losetup").args(["--detach", device.trim()]));
        mounted?;
        detached?;
        Ok(Image { root, _disk: disk })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) = output(Command::new("umount").arg(&self.root)) {
            eprintln!("atomdir-bench: {error}");
        }
    }
}

/// A running server of a disk with slow flushes. Dropping it ends the server.
#[derive(Debug)]
struct SlowDisk {
    place: PathBuf,
    server: Child,
}

impl SlowDisk {
    fn serve(flush_us: u64, directory: &Path) -> Result<SlowDisk> {
        let program = directory.join("slow_disk");
        let compile = "cc -O2 -o \"$1\" \"$2\" $(pkg-config --cflags --libs fuse3)";
        let mut compiler = Command::new("/bin/sh");
        compiler.args(["-ec", compile, "sh"]).arg(&program);
        output(compiler.arg(SLOW_DISK))?;
        let place = slow_disk(directory);
        make_directory(&place)?;
        let mut server = Command::new(&program);
        server.args([flush_us.to_string(), SLOW_IMAGE_MIB.to_string()]);
        let server = server.arg(&place).spawn().describe("start", &program)?;
        let mut disk = SlowDisk { place, server };
        while !disk.image().exists() {
            let ended = disk.server.try_wait().describe("start", &program)?;
            if let Some(status) = ended {
                return Err(Error::Command {
                    command: program.display().to_string(),
                    status,
                    output: String::new(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.place.join("disk")
    }
}

impl Drop for SlowDisk {
    /// Unmounts the server's file system, which ends the server. Tries again, since the loop device
    /// may keep the disk open for a moment after it was unmounted.
    fn drop(&mut self) {
        for _ in 0..500 {
            if output(Command::new("umount").arg(&self.place)).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let ended = self.server.kill().and_then(|()| self.server.wait());
        if let Err(error) = ended {
            eprintln!("atomdir-bench: the disk with slow flushes: {error}");
        }
    }
}

/// The mount point of the server's file system, in the directory of a run.
pub fn slow_disk(directory: &Path) -> PathBuf {
    directory.join("slow")
}

/// The mount point of the image, in the directory of a run.
pub fn root(directory: &Path) -> PathBuf {
    directory.join("mounted")
}

/// Attaches a loop device. Uses direct I/O if possible, so that the image is not cached a second time.
fn attach(image: &Path) -> Result<String> {
    let losetup = |direct: &str| {
        let mut command = Command::new("losetup");
        output(command.args(["--find", "--show", direct]).arg(image))
    };
    losetup("--direct-io=on").or_else(|_| losetup("--direct-io=off"))
}
