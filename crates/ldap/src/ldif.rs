//! LDIF (RFC 2849): lines with the name and the value of an attribute. Entries' files have the
//! format of OpenLDAP's back-ldif.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// back-ldif's first line in each file. The second has the checksum of all that follows it.
const HEADING: &str = "# AUTO-GENERATED FILE - DO NOT EDIT!! Use ldapmodify.\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub name: String,
    pub value: Vec<u8>,
}

impl Line {
    pub fn new(name: &str, value: impl Into<Vec<u8>>) -> Line {
        Line {
            name: name.to_owned(),
            value: value.into(),
        }
    }

    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Parses the lines of a text, without comments. `None` in the list stands for the line `-`, which
/// separates two changes of an entry.
pub fn parse(text: &[u8]) -> Option<Vec<Option<Line>>> {
    let mut joined: Vec<Vec<u8>> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        match (line.strip_prefix(b" "), joined.last_mut()) {
            (Some(rest), Some(last)) => last.extend_from_slice(rest),
            _ => joined.push(line.to_vec()),
        }
    }
    let lines = joined.iter();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    lines.map(|line| parse_line(line)).collect()
}

/// Parses lines that all must have names: `None` if one of them is `-`.
pub fn parse_named(text: &[u8]) -> Option<Vec<Line>> {
    parse(text)?.into_iter().collect()
}

fn parse_line(line: &[u8]) -> Option<Option<Line>> {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return (line == b"-").then_some(None);
    };
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    let rest = &line[colon + 1..];
    let value = match rest.strip_prefix(b":") {
        Some(encoded) => STANDARD.decode(encoded.trim_ascii()).ok()?,
        None => rest.trim_ascii_start().to_vec(),
    };
    Some(Some(Line::new(name, value)))
}

/// Writes a line. Passwords, and values that LDIF cannot hold unencoded, are encoded in base64.
pub fn push(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte))
        && !value.starts_with(b" ")
        && !value.starts_with(b":")
        && !value.starts_with(b"<")
        && !value.ends_with(b" ")
        && !name.eq_ignore_ascii_case("userPassword");
    text.extend_from_slice(name.as_bytes());
    if value.is_empty() {
        text.extend_from_slice(b":");
    } else if is_plain {
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
    } else {
        text.extend_from_slice(b":: ");
        text.extend_from_slice(STANDARD.encode(value).as_bytes());
    }
    text.push(b'\n');
}

/// Makes the contents of an entry's file from its relative name and attributes.
pub fn file(rdn: &str, attributes: &[Line]) -> Vec<u8> {
    let mut body = Vec::new();
    push(&mut body, "dn", rdn.as_bytes());
    for line in attributes {
        push(&mut body, &line.name, &line.value);
    }
    let checksum = crc32fast::hash(&body);
    let mut contents = format!("{HEADING}# CRC32 {checksum:08x}\n").into_bytes();
    contents.extend_from_slice(&body);
    contents
}

/// Parses an entry's file into its relative name and attributes.
pub fn parse_file(contents: &[u8]) -> Option<(String, Vec<Line>)> {
    let mut lines = parse_named(contents)?;
    if lines.is_empty() || !lines[0].is("dn") {
        return None;
    }
    let rdn = String::from_utf8(lines.remove(0).value).ok()?;
    Some((rdn, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_lines_are_read_back_unchanged() {
        let values: [&[u8]; 7] = [
            b"plain",
            b" led",
            b"trailed ",
            b":a",
            b"<b",
            "\u{f6}".as_bytes(),
            b"",
        ];
        let attributes: Vec<Line> = values.iter().map(|value| Line::new("a", *value)).collect();
        let contents = file("cn=b", &attributes);
        assert_eq!(parse_file(&contents), Some(("cn=b".to_owned(), attributes)));
    }

    #[test]
    fn long_lines_continue_after_a_space() {
        let lines = parse(b"# no\nreplace: sn\nsn: on\n e\n-\n").unwrap();
        let expected = [
            Some(Line::new("replace", "sn")),
            Some(Line::new("sn", "one")),
            None,
        ];
        assert_eq!(lines, expected);
    }
}
