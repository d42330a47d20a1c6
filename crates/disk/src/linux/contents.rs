//! Reading, writing and copying the contents of regular files.

use rustix::fd::OwnedFd;
use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;

use crate::{Errno, Extent, Result};

/// Used for file systems that cannot copy by themselves.
const COPY_BUFFER_LENGTH: usize = 256 * 1024;

pub(super) fn read_at(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let position = offset.checked_add(filled as u64).ok_or(Errno::INVAL)?;
        let rest = &mut buffer[filled..];
        match retry_on_intr(|| rustix::io::pread(file, &mut *rest, position))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

pub(super) fn write_at(file: &OwnedFd, data: &[u8], offset: u64) -> Result<()> {
    if data.is_empty() {
        return retry_on_intr(|| rustix::io::pwrite(file, data, offset)).map(drop);
    }
    let mut written = 0;
    while written < data.len() {
        let position = offset.checked_add(written as u64).ok_or(Errno::FBIG)?;
        match retry_on_intr(|| rustix::io::pwrite(file, &data[written..], position))? {
            0 => return Err(Errno::IO),
            count => written += count,
        }
    }
    Ok(())
}

/// Moves the handle's file position, which nothing else here uses.
pub(super) fn next_data(file: &OwnedFd, offset: u64) -> Result<Option<Extent>> {
    // Mostly there is data at the offset, and then this one call tells how much.
    let start = match retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Hole(offset))) {
        Ok(end) if end > offset => return Ok(Some(extent(offset, end))),
        Ok(_) => match retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Data(offset))) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error),
        },
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return rest_is_data(file, offset),
        Err(error) => return Err(error),
    };
    match retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Hole(start))) {
        Ok(end) => Ok(Some(extent(start, end))),
        // The file was cut between the two calls.
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn extent(start: u64, end: u64) -> Extent {
    Extent {
        offset: start,
        length: end - start,
    }
}

fn rest_is_data(file: &OwnedFd, offset: u64) -> Result<Option<Extent>> {
    let stat = retry_on_intr(|| rustix::fs::fstat(file))?;
    let length = u64::try_from(stat.st_size).unwrap_or(0);
    Ok((offset < length).then(|| Extent {
        offset,
        length: length - offset,
    }))
}

pub(super) fn copy_range(from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64> {
    let end_max = from.1.max(to.1).checked_add(length);
    end_max.ok_or(Errno::INVAL)?;
    let mut copied = 0;
    while copied < length {
        // The kernel stops at its own limit, far below this, and the loop goes
        // on.
        let count = usize::try_from(length - copied).unwrap_or(usize::MAX);
        let result = retry_on_intr(|| {
            let mut source = from.1 + copied;
            let mut target = to.1 + copied;
            rustix::fs::copy_file_range(from.0, Some(&mut source), to.0, Some(&mut target), count)
        });
        match result {
            // Some file systems return 0 for a copy that they do not support,
            // so only a read that returns nothing counts as the end.
            Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let from = (from.0, from.1 + copied);
                let to = (to.0, to.1 + copied);
                return Ok(copied + copy_through_memory(from, to, length - copied)?);
            }
            Ok(count) => copied += count as u64,
            Err(error) => return Err(error),
        }
    }
    Ok(copied)
}

fn copy_through_memory(from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64> {
    let size = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(COPY_BUFFER_LENGTH);
    let mut buffer = vec![0; size];
    let mut copied = 0;
    while copied < length {
        let wanted = usize::try_from(length - copied)
            .unwrap_or(usize::MAX)
            .min(size);
        let count = read_at(from.0, &mut buffer[..wanted], from.1 + copied)?;
        if count == 0 {
            break;
        }
        write_at(to.0, &buffer[..count], to.1 + copied)?;
        copied += count as u64;
    }
    Ok(copied)
}
