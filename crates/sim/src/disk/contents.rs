//! Reading and writing.

use atomdir_disk::{Access, Errno, Extent, Result};

use super::Handle;
use super::attributes::without_set_id;
use crate::contents::Contents;
use crate::effect::What;
use crate::fault::Fault;
use crate::image::Body;
use crate::operation::CAPABILITY;
use crate::world::World;

fn contents<'a>(world: &'a World, file: &Handle) -> Result<&'a Contents> {
    if file.access == Access::Path {
        return Err(Errno::BADF);
    }
    let inode = world.inode(file.number)?;
    inode.contents().ok_or(match inode.body {
        Body::Directory(_) => Errno::ISDIR,
        _ => Errno::INVAL,
    })
}

fn writable<'a>(world: &'a World, file: &Handle, otherwise: Errno) -> Result<&'a Contents> {
    if file.access != Access::ReadWrite {
        return Err(otherwise);
    }
    contents(world, file)
}

fn end(offset: u64, length: u64) -> Result<u64> {
    let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
    if end > i64::MAX as u64 {
        return Err(Errno::INVAL);
    }
    Ok(end)
}

/// Clears privileges as Linux does when a program without CAP_FSETID changes a
/// file.
fn take_privileges(world: &mut World, file: &Handle) -> Result<()> {
    let inode = world.inode(file.number)?;
    let (mode, left) = (inode.mode, without_set_id(inode.mode));
    let has_capability = inode.xattrs.contains_key(CAPABILITY);
    if left != mode {
        world.change(What::Mode(file.number, left));
    }
    if has_capability {
        world.change(What::Xattr(file.number, CAPABILITY.to_vec(), None));
    }
    Ok(())
}

pub(super) fn read_at(
    world: &World,
    file: &Handle,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize> {
    Ok(contents(world, file)?.read(buffer, offset))
}

pub(super) fn write_at(world: &mut World, file: &Handle, data: &[u8], offset: u64) -> Result<()> {
    let contents = writable(world, file, Errno::BADF)?;
    if data.is_empty() {
        return Ok(());
    }
    let end = end(offset, data.len() as u64)?;
    let (sectors, length) = (contents.written(data, offset), contents.length);
    take_privileges(world, file)?;
    world.change(What::Data(file.number, sectors));
    if end > length {
        world.change(What::Length(file.number, end));
    }
    Ok(())
}

pub(super) fn set_length(world: &mut World, file: &Handle, length: u64) -> Result<()> {
    if writable(world, file, Errno::INVAL)?.reserved > length {
        world
            .faults
            .retain(|fault| !matches!(fault, Fault::Full { .. }));
    }
    let end = end(length, 0)?;
    take_privileges(world, file)?;
    world.change(What::Length(file.number, end));
    Ok(())
}

pub(super) fn allocate(world: &mut World, file: &Handle, offset: u64, length: u64) -> Result<()> {
    writable(world, file, Errno::BADF)?;
    let end = end(offset, length)?;
    // Reserved blocks without data show only in the number of blocks.
    if let Some(Body::File(contents)) = world.live.get_mut(file.number).map(|inode| &mut inode.body)
    {
        contents.reserved = contents.reserved.max(end);
    }
    Ok(())
}

pub(super) fn punch_hole(world: &mut World, file: &Handle, offset: u64, length: u64) -> Result<()> {
    let contents = writable(world, file, Errno::BADF)?;
    let sectors = contents.punched(offset, end(offset, length)?);
    take_privileges(world, file)?;
    world.change(What::Data(file.number, sectors));
    Ok(())
}

pub(super) fn next_data(world: &World, file: &Handle, offset: u64) -> Result<Option<Extent>> {
    Ok(contents(world, file)?.next_data(offset))
}

pub(super) fn copy_range(
    world: &mut World,
    from: (&Handle, u64),
    to: (&Handle, u64),
    length: u64,
) -> Result<u64> {
    end(from.1.max(to.1), length)?;
    let source = contents(world, from.0)?;
    writable(world, to.0, Errno::BADF)?;
    let count = source.length.saturating_sub(from.1).min(length);
    let mut data = vec![0; count as usize];
    source.read(&mut data, from.1);
    write_at(world, to.0, &data, to.1)?;
    Ok(count)
}
