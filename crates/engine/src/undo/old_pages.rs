//! Reads the bytes that a commit has overwritten, from its record or from limbo.

use atomdir_disk::{Access, Disk, Extent, Identity, Result};
use atomdir_format::record::{Former, FormerPages, Run};

use crate::ids::Sequence;
use crate::names;
use crate::view::View;

const COPY_CHUNK: u64 = 1 << 20;

/// The bytes that a commit has overwritten.
pub(super) struct OldPages<'a, D: Disk> {
    /// Those in the record.
    runs: std::slice::Iter<'a, Run>,
    /// The file in limbo, and the extents still to be read.
    saved: Option<(D::Handle, Vec<Extent>)>,
}

impl<'a, D: Disk> OldPages<'a, D> {
    pub fn open(
        view: &View<D>,
        identity: Identity,
        sequence: Sequence,
        former: &'a Former,
    ) -> Result<OldPages<'a, D>> {
        match &former.pages {
            FormerPages::Carried { runs } => Ok(OldPages {
                runs: runs.iter(),
                saved: None,
            }),
            FormerPages::Limbo => {
                let name = names::saved_pages(identity, sequence);
                let core = &view.core;
                let file = core.disk.open(&core.control.limbo, &name, Access::Read)?;
                let extents = former.extents.iter().rev().copied().collect();
                Ok(OldPages {
                    runs: [].iter(),
                    saved: Some((file, extents)),
                })
            }
        }
    }

    pub fn next(&mut self, disk: &D) -> Result<Option<Run>> {
        if let Some(run) = self.runs.next() {
            return Ok(Some(run.clone()));
        }
        let Some((file, extents)) = &mut self.saved else {
            return Ok(None);
        };
        while let Some(Extent { offset, length }) = extents.pop() {
            let end = offset + length;
            let data = disk.next_data(file, offset)?;
            let Some(data) = data.filter(|data| data.offset < end) else {
                continue;
            };
            let start = data.offset.max(offset);
            let stop = data.offset.saturating_add(data.length).min(end);
            let stop = stop.min(start + COPY_CHUNK);
            if stop < end {
                extents.push(Extent {
                    offset: stop,
                    length: end - stop,
                });
            }
            let mut bytes = vec![0; (stop - start) as usize];
            let count = disk.read_at(file, &mut bytes, start)?;
            bytes.truncate(count);
            return Ok(Some(Run {
                offset: start,
                bytes,
            }));
        }
        Ok(None)
    }
}
