//! Files that are open in a transaction.

use super::error::FileError;
use super::metadata::{Metadata, Permissions};
use super::session::{AttributeChange, OpenFile, Session};
use atomdir_disk::Errno;
use atomdir_engine::SetTime;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// How a file is opened, as with [`std::fs::OpenOptions`].
///
/// ```
/// # let scratch = atomdir_testing::Scratch::new("doc");
/// # atomdir::init(scratch.path(), None)?;
/// # let store = atomdir::Store::open(scratch.path())?;
/// use atomdir::OpenOptions;
/// use std::io::Write;
///
/// let tx = store.begin()?;
/// let mut log = tx.open_with("log", OpenOptions::new().append(true).create(true))?;
/// log.write_all(b"started\n")?;
/// drop(log);
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) follow: bool,
    pub(crate) in_place: bool,
    pub(crate) mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Options that allow nothing yet.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            follow: true,
            in_place: false,
            mode: 0o666,
        }
    }

    /// For reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// For writing at the end of the file, wherever that is at each write.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Removes the contents of a file that exists.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file, and fails if the name exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Whether a symbolic link at the end of the path is followed, as it is by default.
    pub fn follow(&mut self, follow: bool) -> &mut OpenOptions {
        self.follow = follow;
        self
    }

    /// Use this for a file in which a transaction changes a few pages, such as a database. The
    /// commit then logs those pages and writes them in place. Without this, a file of up to 1 MiB
    /// is replaced as a whole, so that programs outside transactions always see it whole.
    ///
    /// Has no effect through the service.
    pub fn in_place(&mut self, in_place: bool) -> &mut OpenOptions {
        self.in_place = in_place;
        self
    }

    /// The permission bits of a new file, by default 0666, before the umask is applied.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Refuses options that contradict each other, as std does.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        let changes = self.truncate || self.create || self.create_new;
        let is_open = self.read || self.writes();
        match !is_open || changes && !self.writes() || self.truncate && self.append {
            true => Err(Errno::INVAL),
            false => Ok(()),
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.write || self.append
    }
}

/// A file that is open in a transaction. It is closed when dropped, and must be closed before
/// the transaction ends.
///
/// Several threads may use one file with [`read_at`](File::read_at) and
/// [`write_all_at`](File::write_all_at). The position that [`Read`], [`Write`] and [`Seek`] use belongs
/// to this value alone. Writes go to the transaction at once: nothing is buffered.
///
/// Its errors are those of [`std::fs::File`]. If another transaction is in the way, the error is of
/// the kind `ResourceBusy` and contains the [`FileError::Conflict`], as which
/// [`Error::from`](crate::Error) takes it.
pub struct File<'transaction> {
    inner: Box<dyn OpenFile + 'transaction>,
    session: Arc<dyn Session>,
    path: PathBuf,
    position: u64,
    is_append: bool,
}

impl std::fmt::Debug for File<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut file = formatter.debug_struct("File");
        file.field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl<'transaction> File<'transaction> {
    pub(super) fn new(
        inner: Box<dyn OpenFile + 'transaction>,
        session: &Arc<dyn Session>,
        path: &Path,
        is_append: bool,
    ) -> Self {
        File {
            inner,
            session: session.clone(),
            path: path.to_owned(),
            position: 0,
            is_append,
        }
    }

    /// Reads from the offset on, without the position. Reads less than the buffer holds only at
    /// the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.inner.read_at(buffer, offset);
        read.map_err(self.failed("read"))
    }

    /// Writes all of the data from the offset on, without the position. A file that is too
    /// short is filled with zeros up to there.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let written = self.inner.write_at(data, offset);
        written.map_err(self.failed("write"))
    }

    /// Writes at the end of the file, without the position, and returns where the file ends
    /// then. The file must be open for [appending](OpenOptions::append).
    pub fn append(&self, data: &[u8]) -> io::Result<u64> {
        match self.is_append {
            true => self.inner.append(data).map_err(self.failed("write")),
            false => Err(Errno::BADF.into()),
        }
    }

    /// The file's length. In a serializable transaction this is less than to read the
    /// [attributes](File::metadata), which include the time of the last change: others may still
    /// overwrite pages that were not read.
    pub fn length(&self) -> io::Result<u64> {
        self.inner.length().map_err(self.failed("examine"))
    }

    /// The file's attributes.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.inner.metadata().map_err(self.failed("examine"))
    }

    /// Cuts the file off, or extends it with zeros.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(AttributeChange {
            length: Some(length),
            ..AttributeChange::default()
        })
    }

    /// Sets the permission bits, with set-id and sticky bits.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.change(AttributeChange {
            mode: Some(permissions.mode()),
            ..AttributeChange::default()
        })
    }

    /// Sets the time of the last change of contents.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        self.change(AttributeChange {
            modified: Some(SetTime::At(modified.into())),
            ..AttributeChange::default()
        })
    }

    fn change(&self, change: AttributeChange) -> io::Result<()> {
        let changed = self.inner.set_attributes(&change);
        changed.map_err(self.failed("change"))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Errno) -> io::Error {
        move |errno| match FileError::of(&*self.session, operation, &self.path, errno) {
            conflict @ FileError::Conflict { .. } => conflict.into(),
            _ => errno.into(),
        }
    }
}

impl Read for File<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.is_append {
            self.position = self.append(data)?;
        } else {
            self.write_all_at(data, self.position)?;
            self.position += data.len() as u64;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let moved = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.length()?.checked_add_signed(by),
        };
        let moved = moved.filter(|position| *position <= i64::MAX as u64);
        self.position = moved.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
