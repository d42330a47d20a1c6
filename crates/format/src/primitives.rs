//! Numbers, byte strings and the small types that records are made of.
//!
//! A *number* is unsigned LEB128: seven bits per byte, least significant first,
//! with the high bit set on all but the last byte. Only the shortest form is
//! allowed, so every record has exactly one encoding.

use atomdir_disk::{Extent, Identity, Kind, Name, Timestamp};

use crate::{DecodeError, Problem};

pub(crate) type Result<T> = std::result::Result<T, DecodeError>;

/// The tag of [`Kind::Directory`].
pub(crate) const DIRECTORY: u8 = 2;

#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn string(&mut self, string: &[u8]) {
        self.number(string.len() as u64);
        self.bytes.extend_from_slice(string);
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Writer, &T)) {
        self.number(items.len() as u64);
        for value in items {
            item(self, value);
        }
    }

    pub(crate) fn identity(&mut self, identity: Identity) {
        self.number(identity.inode);
        self.bytes.extend_from_slice(&identity.birth.to_le_bytes());
    }

    pub(crate) fn time(&mut self, time: Timestamp) {
        self.bytes.extend_from_slice(&time.seconds.to_le_bytes());
        self.bytes
            .extend_from_slice(&time.nanoseconds.to_le_bytes());
    }

    pub(crate) fn extent(&mut self, extent: Extent) {
        self.number(extent.offset);
        self.number(extent.length);
    }

    pub(crate) fn kind(&mut self, kind: Kind) {
        self.byte(match kind {
            Kind::File => 1,
            Kind::Directory => DIRECTORY,
            Kind::Symlink => 3,
            Kind::Fifo => 4,
            Kind::Socket => 5,
            Kind::CharacterDevice => 6,
            Kind::BlockDevice => 7,
        });
    }
}

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    pub(crate) fn fail<T>(&self, problem: Problem) -> Result<T> {
        Err(DecodeError {
            position: self.position,
            problem,
        })
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.position == self.bytes.len()
    }

    pub(crate) fn finish(&self) -> Result<()> {
        if self.position < self.bytes.len() {
            return self.fail(Problem::Trailing);
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.bytes[self.position..].get(..length) {
            None => self.fail(Problem::Truncated),
            Some(taken) => {
                self.position += length;
                Ok(taken)
            }
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a byte in which only the bits of `known` may be set.
    pub(crate) fn flags(&mut self, known: u8) -> Result<u8> {
        let flags = self.byte()?;
        if flags & !known != 0 {
            return self.fail(Problem::Tag(flags));
        }
        Ok(flags)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if byte & 0x80 != 0 {
                continue;
            }
            let overlong = byte == 0 && shift > 0;
            let too_large = (bits << shift) >> shift != bits;
            if overlong || too_large {
                break;
            }
            return Ok(value);
        }
        self.fail(Problem::Number)
    }

    pub(crate) fn number_u32(&mut self) -> Result<u32> {
        let number = self.number()?;
        u32::try_from(number).or_else(|_| self.fail(Problem::Number))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => self.fail(Problem::Truncated),
        }
    }

    /// The list grows as its items are read, so a wrong count allocates
    /// nothing.
    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        for _ in 0..self.number()? {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn name(&mut self) -> Result<Name> {
        let bytes = self.string()?;
        Name::new(bytes).or_else(|_| self.fail(Problem::Name))
    }

    /// Reads an index into a list of `length` items.
    pub(crate) fn index(&mut self, length: usize) -> Result<u32> {
        let index = self.number_u32()?;
        if index as usize >= length {
            return self.fail(Problem::Index);
        }
        Ok(index)
    }

    pub(crate) fn identity(&mut self) -> Result<Identity> {
        Ok(Identity {
            inode: self.number()?,
            birth: u64::from_le_bytes(self.array()?),
        })
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp {
            seconds: i64::from_le_bytes(self.array()?),
            nanoseconds: u32::from_le_bytes(self.array()?),
        })
    }

    pub(crate) fn extent(&mut self) -> Result<Extent> {
        let extent = Extent {
            offset: self.number()?,
            length: self.number()?,
        };
        if extent.offset.checked_add(extent.length).is_none() {
            return self.fail(Problem::Extent);
        }
        Ok(extent)
    }

    pub(crate) fn kind(&mut self) -> Result<Kind> {
        Ok(match self.byte()? {
            1 => Kind::File,
            DIRECTORY => Kind::Directory,
            3 => Kind::Symlink,
            4 => Kind::Fifo,
            5 => Kind::Socket,
            6 => Kind::CharacterDevice,
            7 => Kind::BlockDevice,
            other => return self.fail(Problem::Tag(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_encoding() {
        for value in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut writer = Writer::default();
            writer.number(value);
            assert_eq!(Reader::new(&writer.bytes).number(), Ok(value));
        }
        let overlong: &[u8] = &[0x80, 0];
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        let endless = [0x80; 11];
        for bytes in [overlong, &too_large, &endless] {
            let error = Reader::new(bytes).number().unwrap_err();
            assert_eq!(error.problem, Problem::Number);
        }
        assert_eq!(
            Reader::new(&[0x80]).number().unwrap_err().problem,
            Problem::Truncated
        );
    }
}
