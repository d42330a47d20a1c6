//! Refuses `xz` data that needs too much memory, before the library that decodes it allocates it.
//!
//! The header of a block says how large the decoder's dictionary must be, up to 4 GiB, and 200 bytes
//! can say that. The library has no limit, so this follows the format, by
//! <https://tukaani.org/xz/xz-file-format.txt>, as far as it takes to find those headers. Whatever is
//! malformed passes: the library refuses it.

use super::invalid;
use std::io::{self, Read};

/// As much as `xz -9` needs, and once more.
const DICTIONARY_MAX: u64 = 128 << 20;

const STREAM_HEADER: u64 = 12;
const FOOTER: u64 = 12;
const CHECKSUM: u64 = 4;
const FILTER_LZMA2: u64 = 0x21;

/// Passes on what it reads.
pub struct Limited<R> {
    inner: R,
    format: Format,
}

impl<R> Limited<R> {
    pub fn new(inner: R) -> Limited<R> {
        Limited {
            inner,
            format: Format::default(),
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        for byte in &buffer[..count] {
            self.format.follow(*byte)?;
        }
        Ok(count)
    }
}

/// The part of the format that the next byte belongs to.
#[derive(Clone, Copy)]
enum Part {
    StreamHeader,
    BlockSize,
    BlockHeader,
    Chunk,
    ChunkHeader,
    Contents,
    PaddingAndCheck,
    IndexCount,
    IndexRecords,
    IndexEnd,
    Between,
    Malformed,
}

struct Format {
    part: Part,
    /// What is kept of the part.
    bytes: Vec<u8>,
    /// How many bytes of the part are to come.
    left: u64,
    check_length: u64,
    /// The length of the present block or index so far; both end at a multiple of 4.
    length: u64,
    /// The numbers that are to come in the index.
    numbers: u64,
}

impl Default for Format {
    fn default() -> Format {
        Format {
            part: Part::StreamHeader,
            bytes: Vec::new(),
            left: STREAM_HEADER,
            check_length: 0,
            length: 0,
            numbers: 0,
        }
    }
}

impl Format {
    fn expect(&mut self, part: Part, left: u64) {
        self.bytes.clear();
        (self.part, self.left) = (part, left);
    }

    fn follow(&mut self, byte: u8) -> io::Result<()> {
        self.length += 1;
        self.left = self.left.saturating_sub(1);
        match self.part {
            Part::Malformed => {}
            Part::Contents if self.left > 0 => {}
            Part::Contents => self.expect(Part::Chunk, 1),
            Part::PaddingAndCheck | Part::IndexEnd if self.left > 0 => {}
            Part::PaddingAndCheck => self.expect(Part::BlockSize, 1),
            Part::IndexEnd => self.expect(Part::Between, 1),
            // Streams may have zeros between them.
            Part::Between if byte == 0 => {}
            Part::Between => {
                self.expect(Part::StreamHeader, STREAM_HEADER - 1);
                self.bytes.push(byte);
            }
            Part::BlockSize if byte == 0 => {
                self.length = 1;
                self.expect(Part::IndexCount, 1);
            }
            Part::BlockSize => {
                self.length = 1;
                self.expect(Part::BlockHeader, (u64::from(byte) + 1) * 4 - 1);
            }
            Part::Chunk => self.chunk(byte),
            Part::IndexCount | Part::IndexRecords => self.index(byte),
            Part::StreamHeader | Part::BlockHeader | Part::ChunkHeader => {
                self.bytes.push(byte);
                if self.left == 0 {
                    self.header()?;
                }
            }
        }
        Ok(())
    }

    /// The first byte of a chunk of LZMA2.
    fn chunk(&mut self, byte: u8) {
        match byte {
            0 => {
                let padding = self.length.next_multiple_of(4) - self.length;
                match padding + self.check_length {
                    0 => self.expect(Part::BlockSize, 1),
                    left => self.expect(Part::PaddingAndCheck, left),
                }
            }
            1 | 2 => self.expect(Part::ChunkHeader, 2),
            // Two lengths, and perhaps a byte of properties.
            0x80..=0xbf => self.expect(Part::ChunkHeader, 4),
            0xc0..=0xff => self.expect(Part::ChunkHeader, 5),
            _ => self.expect(Part::Malformed, 0),
        }
    }

    fn index(&mut self, byte: u8) {
        self.bytes.push(byte);
        if byte & 0x80 != 0 && self.bytes.len() < 9 {
            return;
        }
        match self.part {
            // Each record has two numbers.
            Part::IndexCount => self.numbers = number(&mut &self.bytes[..]).saturating_mul(2),
            _ => self.numbers -= 1,
        }
        match self.numbers {
            0 => {
                let padding = self.length.next_multiple_of(4) - self.length;
                self.expect(Part::IndexEnd, padding + CHECKSUM + FOOTER);
            }
            _ => self.expect(Part::IndexRecords, 1),
        }
    }

    fn header(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        match self.part {
            Part::StreamHeader => {
                self.check_length = match bytes[7] & 0x0f {
                    0 => 0,
                    kind => 4 << ((kind - 1) / 3),
                };
                self.expect(Part::BlockSize, 1);
            }
            Part::BlockHeader => {
                check_memory(&bytes)?;
                self.length = 0;
                self.expect(Part::Chunk, 1);
            }
            _ => {
                let at = if bytes.len() == 2 { 0 } else { 2 };
                let length = u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])) + 1;
                self.expect(Part::Contents, length);
            }
        }
        Ok(())
    }
}

/// Looks at the dictionary that a block's header asks for.
fn check_memory(header: &[u8]) -> io::Result<()> {
    let Some((flags, mut rest)) = header.split_first() else {
        return Ok(());
    };
    // The compressed and the uncompressed size are optional.
    for flag in [0x40, 0x80] {
        if flags & flag != 0 {
            number(&mut rest);
        }
    }
    for _ in 0..=flags & 3 {
        let filter = number(&mut rest);
        let length = usize::try_from(number(&mut rest)).unwrap_or(usize::MAX);
        let Some((properties, later)) = rest.split_at_checked(length) else {
            return Ok(());
        };
        rest = later;
        if let (FILTER_LZMA2, [code]) = (filter, properties) {
            let code = u64::from(code & 0x3f);
            let dictionary = (2 | code & 1) << (code / 2 + 11);
            if dictionary > DICTIONARY_MAX {
                return Err(invalid(format!(
                    "the archive takes {} MiB of memory to unpack, and at most {} are allowed; pass \
                     the output of `xz -dc` as `-`",
                    dictionary >> 20,
                    DICTIONARY_MAX >> 20
                )));
            }
        }
    }
    Ok(())
}

/// Seven bits a byte, the least significant first; takes it off the bytes.
fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_testing::tools_present;
    use lzma_rust2::XzReader;
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// Again as often as it takes: a test of `enter` ends all children of this process.
    fn compressed(contents: &[u8], check: &str, block: &str) -> Vec<u8> {
        loop {
            if let Some(bytes) = try_to_compress(contents, check, block) {
                return bytes;
            }
        }
    }

    fn try_to_compress(contents: &[u8], check: &str, block: &str) -> Option<Vec<u8>> {
        let mut command = Command::new("xz");
        command.args(["-c", "-T1", &format!("--check={check}")]);
        command.arg(format!("--block-size={block}"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let contents = contents.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&contents));
        let output = child.wait_with_output().unwrap();
        let is_killed = output.status.signal().is_some();
        assert!(output.status.success() || is_killed);
        let written = writer.join().unwrap();
        assert!(written.is_ok() || is_killed);
        (!is_killed).then_some(output.stdout)
    }

    /// Sets the size of the dictionary in the header of the first block after `from`.
    fn with_dictionary(bytes: &mut [u8], from: usize, code: u8) {
        let at = from
            + bytes[from..]
                .windows(2)
                .position(|two| two == [0x21, 1])
                .unwrap();
        bytes[at + 2] = code;
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        Limited::new(bytes).read_to_end(&mut read)?;
        Ok(read)
    }

    #[test]
    fn a_dictionary_that_is_too_large_is_found_in_every_block_and_stream() {
        let test = "a_dictionary_that_is_too_large_is_found_in_every_block_and_stream";
        if !tools_present(test, &["xz"]) {
            return;
        }
        let mut contents: Vec<u8> = (0..700_000u32)
            .map(|at| (at.wrapping_mul(at) >> 7) as u8)
            .collect();
        contents.extend([0; 100_000]);
        for check in ["none", "crc32", "crc64", "sha256"] {
            for block in ["0", "131072"] {
                let whole = compressed(&contents, check, block);
                let mut decoded = Vec::new();
                let mut reader = XzReader::new(Limited::new(&whole[..]), true);
                reader.read_to_end(&mut decoded).unwrap();
                assert!(decoded == contents, "{check} {block}");
                // As a second stream, after padding.
                let mut second = [whole.clone(), vec![0; 8], whole.clone()].concat();
                assert_eq!(read(&second).unwrap(), second);
                with_dictionary(&mut second, whole.len(), 31);
                let refused = read(&second).unwrap_err().to_string();
                assert!(refused.contains("192 MiB"), "{check} {block}: {refused}");
            }
        }
    }
}
