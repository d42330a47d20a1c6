use std::fmt;

/// A request without all the bytes that its operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the kernel sent a FUSE request that is too short or not well formed")
    }
}

impl std::error::Error for Malformed {}

/// Takes fields off the front of a request.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub fn skip(&mut self, length: usize) -> Result<(), Malformed> {
        self.take(length).map(|_| ())
    }

    /// Takes a string that ends with a NUL byte, and returns it without that byte. It is
    /// never empty.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self
            .bytes
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Malformed)?;
        let string = self.take(length)?;
        self.skip(1)?;
        if string.is_empty() {
            Err(Malformed)
        } else {
            Ok(string)
        }
    }

    /// Takes the name of a directory entry: a string that is not a path to elsewhere.
    pub fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.string()?;
        if name.contains(&b'/') || name == b"." || name == b".." {
            return Err(Malformed);
        }
        Ok(name)
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }
}
