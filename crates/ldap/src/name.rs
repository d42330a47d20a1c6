//! Distinguished names (RFC 4514), and back-ldif's file names for them.

use crate::schema::Schema;

/// A distinguished name. As in its text, the part of the entry itself is first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub parts: Vec<Part>,
}

/// One level of a distinguished name: in most cases one attribute with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part as the client or the file has it.
    pub text: String,
    pub values: Vec<(String, Vec<u8>)>,
}

impl Name {
    pub fn parse(text: &str) -> Option<Name> {
        if text.is_empty() {
            return Some(Name { parts: Vec::new() });
        }
        let parts: Option<Vec<Part>> = split(text, &[',', ';'])
            .into_iter()
            .map(Part::parse)
            .collect();
        Some(Name { parts: parts? })
    }

    /// The name in a normal form: equal names have equal texts.
    pub fn normalized(&self, schema: &Schema) -> String {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| part.normalized(schema))
            .collect();
        parts.join(",")
    }

    /// The name of the parent entry.
    pub fn above(&self) -> Name {
        Name {
            parts: self.parts.iter().skip(1).cloned().collect(),
        }
    }

    pub fn below(&self, part: Part) -> Name {
        let parts = std::iter::once(part).chain(self.parts.iter().cloned());
        Name {
            parts: parts.collect(),
        }
    }

    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.text.as_str()).collect();
        parts.join(",")
    }
}

impl Part {
    pub fn parse(text: &str) -> Option<Part> {
        let values: Option<Vec<(String, Vec<u8>)>> =
            split(text, &['+']).into_iter().map(parse_value).collect();
        Some(Part {
            text: text.trim().to_owned(),
            values: values?,
        })
    }

    pub fn normalized(&self, schema: &Schema) -> String {
        let mut values: Vec<String> = self
            .values
            .iter()
            .map(|(name, value)| {
                let value = schema.normalized(name, value);
                format!("{}={}", schema.canonical(name), escaped(&value))
            })
            .collect();
        values.sort();
        values.join("+")
    }
}

/// The name of a file or directory. `normalized` has slapd's escapes; back-ldif escapes three more
/// characters.
pub fn file_name(normalized: &str) -> String {
    let escaped = normalized.replace('/', "\\2F");
    escaped.replace('.', "\\2E").replace(':', "\\3A")
}

/// Splits at separators that are not escaped.
fn split<'a>(text: &'a str, separators: &[char]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut begin, mut is_escaped) = (0, false);
    for (at, character) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if character == '\\' {
            is_escaped = true;
        } else if separators.contains(&character) {
            parts.push(&text[begin..at]);
            begin = at + character.len_utf8();
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn parse_value(text: &str) -> Option<(String, Vec<u8>)> {
    let (name, value) = text.split_once('=')?;
    let (name, value) = (name.trim(), value.trim_start());
    if name.is_empty() {
        return None;
    }
    if let Some(digits) = value.strip_prefix('#') {
        return Some((name.to_owned(), from_hexadecimal(digits.trim_end())?));
    }
    let mut bytes = Vec::new();
    // Drop spaces at the end, up to the last one that is escaped.
    let mut kept = 0;
    let mut rest = value.as_bytes();
    while let [byte, more @ ..] = rest {
        rest = more;
        if *byte != b'\\' {
            bytes.push(*byte);
            if *byte != b' ' {
                kept = bytes.len();
            }
            continue;
        }
        match hexadecimal_pair(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[2..];
            }
            None => {
                bytes.push(*rest.first()?);
                rest = &rest[1..];
            }
        }
        kept = bytes.len();
    }
    bytes.truncate(kept);
    Some((name.to_owned(), bytes))
}

pub fn hexadecimal_pair(bytes: &[u8]) -> Option<u8> {
    let pair = std::str::from_utf8(bytes.get(..2)?).ok()?;
    pair.bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u8::from_str_radix(pair, 16).ok())?
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    digits.as_bytes().chunks(2).map(hexadecimal_pair).collect()
}

/// Escapes a value as slapd does in normalized names.
fn escaped(value: &[u8]) -> String {
    let mut text = String::new();
    let last = value.len().wrapping_sub(1);
    for (at, character) in String::from_utf8_lossy(value).char_indices() {
        let is_special = matches!(character, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=')
            || (at == 0 && matches!(character, ' ' | '#'))
            || (at == last && character == ' ')
            || character == '\0';
        if is_special {
            text.push_str(&format!("\\{:02X}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}
