//! Reads a directory one piece at a time.

use std::sync::Arc;

use atomdir_disk::{Errno, Kind};

use super::{Call, Scratch};
use crate::filesystem::{Filesystem, Result};
use crate::listings::{Listing, OFFSET_AFTER_DOT, OFFSET_AFTER_DOTS};
use crate::wire::{DATA_LENGTH_MAX, DirectoryWriter, PlainEntry};

/// The inode number of `..`: no open directory knows its parent's.
const INODE_UNKNOWN: u64 = 0xffff_ffff;

impl<F: Filesystem> Call<'_, F> {
    pub(super) fn read_directory(
        &self,
        offset: u64,
        length_max: u32,
        plus: bool,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { reply, given, .. } = scratch;
        let listing = self.listing()?;
        let length_max = (length_max as usize).min(DATA_LENGTH_MAX);
        let mut writer = DirectoryWriter::new(reply, length_max, plus);
        self.push_dots(offset, &mut writer)?;
        for (offset, item) in listing.after(offset) {
            let entry = PlainEntry {
                name: item.name.as_bytes(),
                inode: item.inode,
                kind: item.kind,
                offset,
            };
            if !writer.fits(entry.name) {
                break;
            }
            if !plus {
                writer.push(&entry, None);
                continue;
            }
            match self.filesystem.lookup(&self.request, self.node, entry.name) {
                Ok(Some(found)) => {
                    given.push(found.node);
                    writer.push(&entry, Some(&found));
                }
                // It was removed after the directory was listed.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(_) => writer.push(&entry, None),
            }
        }
        if reply.is_empty() {
            self.listings.finished(self.node);
        }
        Ok(())
    }

    fn push_dots(&self, offset: u64, writer: &mut DirectoryWriter<'_>) -> Result<()> {
        let mut push = |name, inode, offset| {
            let kind = Kind::Directory;
            let entry = PlainEntry {
                name,
                inode,
                kind,
                offset,
            };
            writer.push(&entry, None);
        };
        if offset < OFFSET_AFTER_DOT {
            let (attributes, _) = self.filesystem.attributes(&self.request, self.node)?;
            push(&b"."[..], attributes.inode, OFFSET_AFTER_DOT);
        }
        if offset < OFFSET_AFTER_DOTS {
            push(b"..", INODE_UNKNOWN, OFFSET_AFTER_DOTS);
        }
        Ok(())
    }

    fn listing(&self) -> Result<Arc<Listing>> {
        if let Some(listing) = self.listings.kept(self.node) {
            return Ok(listing);
        }
        let moment = self.listings.moment(self.node);
        let listing = self
            .listings
            .sort(self.filesystem.list(&self.request, self.node)?);
        self.listings.keep(self.node, &listing, moment);
        Ok(listing)
    }
}
