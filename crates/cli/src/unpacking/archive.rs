//! Finds out by its first bytes what an archive is.

use super::xz_memory::Limited;
use super::{Sink, invalid, tar, zip};
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::os::fd::OwnedFd;

/// As many bytes as the longest magic number of a format has.
const MARK_LENGTH: usize = 6;

/// An archive that is open for reading.
pub struct Archive(OwnedFd);

impl Archive {
    pub fn new(file: OwnedFd) -> Archive {
        Archive(file)
    }

    /// Passes each entry to the sink.
    pub fn read(mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        let mut magic = Vec::new();
        self.by_ref()
            .take(MARK_LENGTH as u64)
            .read_to_end(&mut magic)?;
        if magic.starts_with(b"PK\x03\x04") || magic.starts_with(b"PK\x05\x06") {
            self.seek(io::SeekFrom::Start(0))
                .map_err(|_| invalid("a zip archive cannot be read from a pipe"))?;
            return zip::read(BufReader::new(self), sink);
        }
        let whole = Cursor::new(magic.clone()).chain(BufReader::with_capacity(1 << 16, self));
        match &magic[..] {
            [0x1f, 0x8b, ..] => tar::read(MultiGzDecoder::new(whole), sink),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                tar::read(XzReader::new(Limited::new(whole), true), sink)
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                tar::read(Zstd::new(whole), sink)
            }
            [b'B', b'Z', b'h', ..] => Err(invalid(
                "bzip2 is not supported; pass the output of `bzip2 -dc` as `-`",
            )),
            [] => Err(invalid("the archive is empty")),
            _ => tar::read(whole, sink),
        }
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::read(&self.0, &mut *buffer))?)
    }
}

impl Seek for Archive {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let to = match to {
            io::SeekFrom::Start(offset) => SeekFrom::Start(offset),
            io::SeekFrom::End(offset) => SeekFrom::End(offset),
            io::SeekFrom::Current(offset) => SeekFrom::Current(offset),
        };
        Ok(rustix::fs::seek(&self.0, to)?)
    }
}

/// Decompresses frames one after another, as `zstd` makes them of several files or threads.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Zstd<R> {
        Zstd {
            source,
            decoder: FrameDecoder::new(),
            is_in_frame: false,
        }
    }

    /// Begins the next frame. False at the end.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(invalid(error.to_string())),
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
            }
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let written = self.decoder.get_checksum_from_data();
        match written.is_none() || written == self.decoder.get_calculated_checksum() {
            true => Ok(()),
            false => Err(invalid("the archive is damaged: a checksum is wrong")),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if buffer.is_empty() || self.is_in_frame && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.is_in_frame && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(|error| invalid(error.to_string()))?;
                continue;
            }
            if self.is_in_frame {
                self.end_frame()?;
            }
            if !self.next()? {
                return Ok(0);
            }
        }
    }
}
