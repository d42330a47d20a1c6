//! The competitor: the kernel's overlay over the directory, and renames from its upper layer as the
//! commit. It does not isolate, finds no conflicts, and a crash can leave half of a commit.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Describe, Result};
use crate::programs::{clear, make_directory, output};

pub struct Overlay {
    base: PathBuf,
    layers: PathBuf,
    is_mounted: bool,
}

impl Overlay {
    pub fn mount(base: &Path) -> Result<Overlay> {
        Self::mount_with(base, "")
    }

    /// With the options that spare copies when attributes are set and directories are moved. What
    /// its upper layer holds then cannot be landed by renames.
    pub fn mount_for_bulk(base: &Path) -> Result<Overlay> {
        Self::mount_with(base, ",metacopy=on,redirect_dir=on")
    }

    fn mount_with(base: &Path, further: &str) -> Result<Overlay> {
        let mut layers = base.as_os_str().to_owned();
        layers.push("-layers");
        let overlay = Overlay {
            base: base.to_owned(),
            layers: layers.into(),
            is_mounted: true,
        };
        for layer in ["upper", "work", "merged"] {
            make_directory(&overlay.layers.join(layer))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}{further}",
            base.display(),
            overlay.upper().display(),
            overlay.layers.join("work").display(),
        );
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &options]);
        output(mount.arg(overlay.merged()))?;
        Ok(overlay)
    }

    pub fn merged(&self) -> PathBuf {
        self.layers.join("merged")
    }

    fn upper(&self) -> PathBuf {
        self.layers.join("upper")
    }

    /// Unmounts the overlay, and moves the upper layer's files into the base.
    pub fn land(mut self) -> Result<()> {
        self.unmount()?;
        land(&self.upper(), &self.base)
    }

    /// Unmounts the overlay and leaves the base as it was.
    pub fn leave(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        self.is_mounted = false;
        output(Command::new("umount").arg(self.merged())).map(|_| ())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let unmounted = if self.is_mounted {
            self.unmount()
        } else {
            Ok(())
        };
        if let Err(error) = unmounted.and_then(|()| clear(&self.layers)) {
            eprintln!("atomdir-bench: {error}");
        }
    }
}

fn land(upper: &Path, base: &Path) -> Result<()> {
    for entry in fs::read_dir(upper).describe("list", upper)? {
        let entry = entry.describe("list", upper)?;
        let place = base.join(entry.file_name());
        land_entry(&entry, &place).describe("land", &place)??;
    }
    Ok(())
}

/// Moves one entry. Does not handle an opaque directory over an existing one: no workload replaces a
/// directory by another.
fn land_entry(entry: &DirEntry, place: &Path) -> io::Result<Result<()>> {
    let kind = entry.file_type()?;
    if kind.is_char_device() && entry.metadata()?.rdev() == 0 {
        remove(place)?;
    } else if kind.is_dir() && place.is_dir() {
        return Ok(land(&entry.path(), place));
    } else {
        fs::rename(entry.path(), place)?;
    }
    Ok(Ok(()))
}

/// Removes the object that a whiteout hides. It may never have been in the base.
fn remove(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(status) if status.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
