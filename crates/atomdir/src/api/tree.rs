//! Operations on whole trees, made of the others.

use super::error::FileError;
use super::metadata::Permissions;
use super::transaction::Transaction;
use std::io;
use std::path::Path;

impl Transaction {
    /// Creates a directory, and those above it that do not exist.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                self.create_dir_all(above.ok_or(error)?)?;
                let made = self.create_dir(path);
                made.or_else(|error| self.allow_directory(path, error))
            }
            Err(error) => self.allow_directory(path, error),
        }
    }

    /// It is no failure if the directory exists, which another thread may have made just now.
    fn allow_directory(&self, path: &Path, error: FileError) -> Result<(), FileError> {
        let exists = error.kind() == io::ErrorKind::AlreadyExists;
        match exists && self.metadata(path)?.is_dir() {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Removes a directory with everything in it. Symbolic links are removed and not followed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        if self.symlink_metadata(path)?.is_symlink() {
            return self.remove_file(path);
        }
        // A stack, because a tree may be deeper than the thread's stack allows.
        let mut directories = vec![(path.to_owned(), false)];
        while let Some((directory, is_empty)) = directories.pop() {
            if is_empty {
                self.remove_dir(&directory)?;
                continue;
            }
            directories.push((directory.clone(), true));
            for entry in self.read_dir(&directory)? {
                let path = directory.join(&entry.file_name);
                match entry.kind {
                    crate::Kind::Directory => directories.push((path, false)),
                    _ => self.remove_file(&path)?,
                }
            }
        }
        Ok(())
    }

    /// Copies the contents and the mode of a file. Returns how many bytes it has.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, FileError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let failed = |cause| FileError::of_file("copy", from, cause);
        let mut source = self.open(from)?;
        let mode = source.metadata().map_err(failed)?.mode;
        let mut target = self.create(to)?;
        let copied = io::copy(&mut source, &mut target).map_err(failed)?;
        target
            .set_permissions(Permissions::from_mode(mode & 0o777))
            .map_err(failed)?;
        Ok(copied)
    }
}
