//! git's binary patches: the new contents and the old ones, each compressed by
//! deflate and written in base 85. git checks both by their object names, which
//! are hashes.

use crate::output::{Painter, Style};
use miniz_oxide::deflate::compress_to_vec_zlib;
use sha1_smol::Sha1;
use std::io;

/// git's own alphabet.
const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
const LINE_LENGTH_BYTES: usize = 52;
const COMPRESSION_LEVEL: u8 = 6;
/// The object name that stands for a missing file.
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// `None` means that there is no such file on that side.
pub fn show(painter: &mut Painter<'_>, old: Option<&[u8]>, new: Option<&[u8]>) -> io::Result<()> {
    let (old_name, new_name) = (object_name(old), object_name(new));
    painter.line(Style::Heading, format!("index {old_name}..{new_name}"))?;
    painter.line(Style::Plain, "GIT binary patch")?;
    show_literal(painter, new.unwrap_or_default())?;
    show_literal(painter, old.unwrap_or_default())
}

fn show_literal(painter: &mut Painter<'_>, contents: &[u8]) -> io::Result<()> {
    painter.line(Style::Plain, format!("literal {}", contents.len()))?;
    for part in compress_to_vec_zlib(contents, COMPRESSION_LEVEL).chunks(LINE_LENGTH_BYTES) {
        painter.line(Style::Plain, line(part))?;
    }
    painter.line(Style::Plain, "")
}

fn object_name(contents: Option<&[u8]>) -> String {
    let Some(contents) = contents else {
        return NOTHING.to_owned();
    };
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", contents.len()).as_bytes());
    hash.update(contents);
    hash.digest().to_string()
}

/// Writes a letter for the number of bytes, then five digits for every four bytes.
fn line(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u8;
    let letter = match length {
        1..=26 => b'A' + length - 1,
        _ => b'a' + length - 27,
    };
    let mut line = vec![letter];
    for part in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        let mut number = u32::from_be_bytes(word);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[(number % 85) as usize];
            number /= 85;
        }
        line.extend(digits);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_git() {
        // For a deletion, the output of `git diff --binary` ends with a
        // compressed empty file.
        let empty = [0x78, 0x01, 0x03, 0, 0, 0, 0, 1];
        assert_eq!(line(&empty), b"HcmV?d00001");
        assert_eq!(line(&[0xff; 52])[0], b'z');
    }

    #[test]
    fn object_names_are_those_of_git() {
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert_eq!(object_name(Some(b"")), empty);
        assert_eq!(object_name(None), NOTHING);
    }
}
