//! A file that is open in a transaction of the engine.

use super::convert;
use super::session::{EmbeddedTransaction, change_attributes, set_attributes};
use super::walk::Known;
use crate::api::session::{AttributeChange, OpenFile, Result};
use crate::api::{Metadata, OpenOptions};
use atomdir_disk::Errno;
use std::sync::PoisonError;

pub(super) struct EmbeddedFile<'a> {
    session: &'a EmbeddedTransaction,
    object: Known<'a>,
    reads: bool,
    writes: bool,
}

impl<'a> EmbeddedFile<'a> {
    pub(super) fn new(
        session: &'a EmbeddedTransaction,
        object: Known<'a>,
        options: &OpenOptions,
    ) -> EmbeddedFile<'a> {
        EmbeddedFile {
            session,
            object,
            reads: options.read,
            writes: options.writes(),
        }
    }
}

impl OpenFile for EmbeddedFile<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.reads {
            return Err(Errno::BADF);
        }
        let session = self.session;
        let engine = session.engine()?;
        engine.read(self.object.node, offset, buffer, session.caller)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if !self.writes {
            return Err(Errno::BADF);
        }
        if data.is_empty() {
            return Ok(());
        }
        // Like the kernel, which takes set-id bits from files that users write.
        let kill_set_id = !self.session.rights.is_privileged;
        let engine = self.session.engine()?;
        engine
            .write(self.object.node, offset, data, kill_set_id)
            .map(drop)
    }

    fn append(&self, data: &[u8]) -> Result<u64> {
        let appending = self.session.appending.lock();
        let _appending = appending.unwrap_or_else(PoisonError::into_inner);
        let end = self.session.engine()?.attributes(self.object.node)?.length;
        self.write_at(data, end)?;
        Ok(end + data.len() as u64)
    }

    fn metadata(&self) -> Result<Metadata> {
        let attributes = self.session.engine()?.attributes(self.object.node)?;
        Ok(convert::metadata(attributes))
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<()> {
        let node = self.object.node;
        match change.length {
            Some(_) if !self.writes => Err(Errno::INVAL),
            // The file was opened for writing, whatever its mode is now.
            Some(_) => change_attributes(self.session, node, change),
            None => set_attributes(self.session, node, change),
        }
    }
}
