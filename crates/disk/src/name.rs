use std::fmt;

/// One entry name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name cannot be empty, '.' or '..', or hold a slash or a NUL byte")]
    Invalid,
    #[error("a name cannot be longer than 255 bytes")]
    TooLong,
}

impl Name {
    pub const LENGTH_MAX: usize = 255;

    pub fn new(bytes: &[u8]) -> Result<Name, NameError> {
        if bytes.len() > Self::LENGTH_MAX {
            return Err(NameError::TooLong);
        }
        let reserved = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if reserved || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(NameError::Invalid);
        }
        Ok(Name(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.escape_ascii())
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_exactly_when_linux_accepts_them() {
        for good in [&b"a"[..], b"...", b" ", b"new\nline", &[b'x'; 255], &[0xff]] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(Name::new(bad), Err(NameError::Invalid), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
    }
}
