//! A file that is open in a transaction of the engine.

use super::attributes::{change_attributes, set_attributes};
use super::convert;
use super::session::EmbeddedTransaction;
use crate::api::session::{AttributeChange, OpenFile, Result};
use crate::api::{Metadata, OpenOptions};
use atomdir_disk::Errno;
use atomdir_engine::NodeId;
use atomdir_types::sync;
use std::ops::Deref;

/// `S` borrows the transaction or shares it.
pub(super) struct EmbeddedFile<S: Deref<Target = EmbeddedTransaction>> {
    session: S,
    /// The view keeps it until this file is dropped.
    node: NodeId,
    reads: bool,
    writes: bool,
    in_place: bool,
}

impl<S: Deref<Target = EmbeddedTransaction>> EmbeddedFile<S> {
    pub(super) fn new(session: S, node: NodeId, options: &OpenOptions) -> EmbeddedFile<S> {
        EmbeddedFile {
            session,
            node,
            reads: options.read,
            writes: options.writes(),
            in_place: options.in_place,
        }
    }
}

impl<S: Deref<Target = EmbeddedTransaction>> Drop for EmbeddedFile<S> {
    fn drop(&mut self) {
        // In a forked process the locks of the view may be held by threads that do not exist.
        if let Ok(engine) = self.session.engine() {
            engine.forget(self.node, 1);
        }
    }
}

impl<S> OpenFile for EmbeddedFile<S>
where
    S: Deref<Target = EmbeddedTransaction> + Send + Sync,
{
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.reads {
            return Err(Errno::BADF);
        }
        let session = &*self.session;
        let engine = session.engine()?;
        engine.read_unmapped(self.node, offset, buffer, session.caller)
    }

    fn read_whole(&self) -> Result<Vec<u8>> {
        if !self.reads {
            return Err(Errno::BADF);
        }
        let session = &*self.session;
        let engine = session.engine()?;
        engine.read_whole_unmapped(self.node, session.caller)
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
        engine.write(self.node, offset, data, kill_set_id)?;
        match self.in_place {
            true => engine.prefer_in_place(self.node),
            false => Ok(()),
        }
    }

    fn append(&self, data: &[u8]) -> Result<u64> {
        let _appending = sync::lock(&self.session.appending);
        let end = self.session.engine()?.attributes(self.node)?.length;
        self.write_at(data, end)?;
        Ok(end + data.len() as u64)
    }

    fn length(&self) -> Result<u64> {
        self.session.engine()?.length(self.node)
    }

    fn metadata(&self) -> Result<Metadata> {
        let attributes = self.session.engine()?.attributes(self.node)?;
        Ok(convert::metadata(attributes))
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<()> {
        let (session, node) = (&*self.session, self.node);
        match change.length {
            Some(_) if !self.writes => Err(Errno::INVAL),
            // The file was opened for writing, whatever its mode is now.
            Some(_) => change_attributes(session, node, change),
            None => set_attributes(session, node, change),
        }
    }
}
