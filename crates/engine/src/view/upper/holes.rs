//! overlayfs copies a file in large chunks and fills the holes within them.
//! This restores them.

use std::sync::Arc;

use atomdir_disk::{Disk, Result};

use crate::base::Base;
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::view::View;
use crate::view::shown::is_taken;

const CHUNK: usize = 1 << 20;

/// Makes holes again where the base's file has some and the copy has nothing
/// but zeros.
pub(super) fn dig<D: Disk>(view: &mut View<D>, id: NodeId, base: &Arc<Base>) -> Result<()> {
    let length = view.shown_stat(base)?.length;
    let mut at = 0;
    while at < length {
        let data = match view.snapshot().next_data(base, at) {
            // An outside writer has removed or closed the original, so the commit will conflict.
            Err(errno) if is_taken(errno) => return Ok(()),
            data => data?,
        };
        let hole_end = data.map_or(length, |data| data.offset.min(length));
        if hole_end > at {
            dig_one(view, id, at, hole_end)?;
        }
        at = data.map_or(length, |data| data.offset.saturating_add(data.length));
    }
    Ok(())
}

/// Punches holes where the data between `start` and `end` is zeros.
fn dig_one<D: Disk>(view: &mut View<D>, id: NodeId, start: u64, end: u64) -> Result<()> {
    let file = view.staged_file(id)?;
    let disk = &view.core.disk;
    let end = end / PAGE * PAGE;
    let mut buffer = vec![0; CHUNK];
    let mut at = start.next_multiple_of(PAGE);
    while at < end {
        let Some(data) = disk.next_data(&file, at)? else {
            break;
        };
        at = at.max(data.offset / PAGE * PAGE);
        let run_end = data.offset.saturating_add(data.length).min(end);
        while at < run_end {
            let wanted = CHUNK.min((run_end - at).next_multiple_of(PAGE) as usize);
            let count = disk.read_at(&file, &mut buffer[..wanted], at)?;
            buffer[count..wanted].fill(0);
            punch_zeros(disk, &file, at, &buffer[..wanted])?;
            at += wanted as u64;
        }
    }
    Ok(())
}

fn punch_zeros<D: Disk>(disk: &D, file: &D::Handle, offset: u64, pages: &[u8]) -> Result<()> {
    let mut at = offset;
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    for run in pages
        .chunks(PAGE as usize)
        .collect::<Vec<_>>()
        .chunk_by(|a, b| is_zero(a) == is_zero(b))
    {
        let length = run.len() as u64 * PAGE;
        if is_zero(run[0]) {
            disk.punch_hole(file, at, length)?;
        }
        at += length;
    }
    Ok(())
}
