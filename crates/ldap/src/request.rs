//! The requests that slapd sends through back-sock (`man slapd-sock`), and the answers to them.

use crate::ldif::{self, Line};
use atomdir::client::io_reason;
use std::io::{Read, Write};

/// Longer requests are refused. slapd's own limit for a client's request is 4 MiB by default.
const LENGTH_MAX: u64 = 64 << 20;

/// An LDAP result: a code, the matched name and a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: u16,
    /// The name of the nearest existing ancestor, if an entry was not found.
    pub matched: String,
    pub info: String,
}

impl Answer {
    pub const SUCCESS: u16 = 0;
    pub const PROTOCOL_ERROR: u16 = 2;
    pub const TIME_LIMIT_EXCEEDED: u16 = 3;
    pub const SIZE_LIMIT_EXCEEDED: u16 = 4;
    pub const COMPARE_FALSE: u16 = 5;
    pub const COMPARE_TRUE: u16 = 6;
    pub const AUTH_METHOD_NOT_SUPPORTED: u16 = 7;
    pub const NO_SUCH_ATTRIBUTE: u16 = 16;
    pub const UNDEFINED_ATTRIBUTE_TYPE: u16 = 17;
    pub const CONSTRAINT_VIOLATION: u16 = 19;
    pub const TYPE_OR_VALUE_EXISTS: u16 = 20;
    pub const NO_SUCH_OBJECT: u16 = 32;
    pub const INVALID_DN_SYNTAX: u16 = 34;
    pub const INVALID_CREDENTIALS: u16 = 49;
    pub const BUSY: u16 = 51;
    pub const UNWILLING_TO_PERFORM: u16 = 53;
    pub const NAMING_VIOLATION: u16 = 64;
    pub const OBJECT_CLASS_VIOLATION: u16 = 65;
    pub const NOT_ALLOWED_ON_NON_LEAF: u16 = 66;
    pub const ALREADY_EXISTS: u16 = 68;
    pub const OTHER: u16 = 80;

    pub fn new(code: u16, info: impl Into<String>) -> Answer {
        Answer {
            code,
            matched: String::new(),
            info: info.into(),
        }
    }

    pub fn success() -> Answer {
        Answer::new(Answer::SUCCESS, "")
    }

    /// Writes the answer. Control characters in its texts become spaces, since a line break would
    /// end the line early.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let one_line = |text: &str| text.replace(|one: char| one.is_control(), " ");
        let mut text = format!("RESULT\ncode: {}\n", self.code);
        if !self.matched.is_empty() {
            text.push_str(&format!("matched: {}\n", one_line(&self.matched)));
        }
        if !self.info.is_empty() {
            text.push_str(&format!("info: {}\n", one_line(&self.info)));
        }
        text.push('\n');
        to.write_all(text.as_bytes())
    }
}

pub struct Request {
    pub verb: String,
    /// The lines before those of the operation itself, such as `msgid` and `suffix`.
    head: Vec<Line>,
    /// The operation's own lines, from `dn` or `base` on.
    pub body: Vec<Option<Line>>,
}

impl Request {
    /// Reads one request, up to the empty line at its end.
    pub fn read(from: &mut impl Read) -> Result<Request, Answer> {
        let malformed = |info: &str| Answer::new(Answer::PROTOCOL_ERROR, info);
        let mut text = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while !text.ends_with(b"\n\n") {
            let count = from.read(&mut buffer).map_err(|error| {
                malformed(&format!("cannot read the request: {}", io_reason(&error)))
            })?;
            text.extend_from_slice(&buffer[..count]);
            if count == 0 || text.len() as u64 > LENGTH_MAX {
                return Err(malformed(
                    "the request has no empty line at its end, or is longer than 64 MiB",
                ));
            }
        }
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let verb = String::from_utf8_lossy(&text[..end]).into_owned();
        let lines =
            ldif::parse(&text[end..]).ok_or_else(|| malformed("the request is not LDIF"))?;
        let is_own = |line: &Option<Line>| {
            line.as_ref()
                .is_some_and(|line| line.is("dn") || line.is("base") || line.is("oid"))
        };
        let own = lines.iter().position(is_own).unwrap_or(lines.len());
        let (head, body) = lines.split_at(own);
        Ok(Request {
            verb,
            head: head.iter().flatten().cloned().collect(),
            body: body.to_vec(),
        })
    }

    /// The first value with this name. Fails if the request has none.
    pub fn value(&self, name: &str) -> Result<String, Answer> {
        let mut lines = self.head.iter().chain(self.body.iter().flatten());
        lines
            .find(|line| line.is(name))
            .and_then(|line| String::from_utf8(line.value.clone()).ok())
            .ok_or_else(|| {
                Answer::new(Answer::PROTOCOL_ERROR, format!("the request has no {name}"))
            })
    }

    pub fn number(&self, name: &str) -> Result<i64, Answer> {
        let text = self.value(name)?;
        text.parse().map_err(|_| {
            Answer::new(
                Answer::PROTOCOL_ERROR,
                format!("{name} is not a number: {text}"),
            )
        })
    }

    /// The name of the client that slapd has authenticated. Empty for an anonymous one.
    pub fn client(&self) -> String {
        self.value("binddn").unwrap_or_default()
    }
}
