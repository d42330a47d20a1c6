use super::name_of;
use super::rights::set_id_words;
use super::unified::{Comparison, is_binary};
use super::version::{Contents, Version};
use crate::output::{Painter, Style, json, quoted, time};
use atomdir::{ChangeLine, Kind};
use serde::Serialize;
use std::io;

/// A change with what it was before and what it is now.
pub struct Difference<'a> {
    pub(super) line: &'a ChangeLine,
    pub(super) before: Option<Version>,
    pub(super) after: Option<Version>,
}

/// How the contents differ, as far as lines tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    Counted { added: u64, removed: u64 },
    Binary,
    TooLong,
}

/// What there is to compare.
enum Sides<'a> {
    Same,
    Text(&'a [u8], &'a [u8]),
    Binary,
    TooLong,
}

impl Difference<'_> {
    pub fn lines(&self) -> Lines {
        match self.sides() {
            Sides::Same => Lines::Counted {
                added: 0,
                removed: 0,
            },
            Sides::Text(old, new) => {
                let (added, removed) = Comparison::new(old, new).count();
                Lines::Counted { added, removed }
            }
            Sides::Binary => Lines::Binary,
            Sides::TooLong => Lines::TooLong,
        }
    }

    /// The change's line, what became of its attributes, and its contents.
    pub fn show_unified(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let heading = format!("{} {}", self.line.change.letter(), name_of(self.line));
        painter.line(Style::Heading, heading)?;
        let attributes = self.attribute_lines();
        for line in &attributes {
            painter.line(Style::Heading, line)?;
        }
        match self.sides() {
            Sides::Same if attributes.is_empty() && self.line.from.is_none() => {
                painter.line(Style::Plain, "only times differ")
            }
            Sides::Same => Ok(()),
            Sides::Binary => painter.line(Style::Plain, "Binary files differ"),
            Sides::TooLong => painter.line(Style::Plain, "Files differ, too long to compare here"),
            Sides::Text(old, new) => {
                self.show_names(painter)?;
                Comparison::new(old, new).show_hunks(painter)
            }
        }
    }

    fn show_names(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let name = |side: &Option<Version>, letter: &str, path: &[u8]| match side {
            Some(_) => quoted(&[letter.as_bytes(), path].concat()),
            None => "/dev/null".to_owned(),
        };
        let old_path = self.line.from.as_ref().unwrap_or(&self.line.path);
        let old = name(&self.before, "a/", old_path);
        let new = name(&self.after, "b/", &self.line.path);
        painter.line(Style::Heading, format!("--- {old}"))?;
        painter.line(Style::Heading, format!("+++ {new}"))
    }

    fn sides(&self) -> Sides<'_> {
        let (Some(old), Some(new)) = (contents(&self.before), contents(&self.after)) else {
            return Sides::TooLong;
        };
        if old == new {
            Sides::Same
        } else if is_binary(old) || is_binary(new) {
            Sides::Binary
        } else {
            Sides::Text(old, new)
        }
    }

    fn attribute_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match (&self.before, &self.after) {
            (None, Some(after)) => lines.push(format!("new {}", described(after))),
            (Some(before), None) => lines.push(format!("deleted {}", described(before))),
            (Some(before), Some(after)) => {
                if (before.kind, before.mode, before.device_number)
                    != (after.kind, after.mode, after.device_number)
                {
                    lines.push(format!("old {}", described(before)));
                    lines.push(format!("new {}", described(after)));
                }
                if (before.user, before.group) != (after.user, after.group) {
                    lines.push(format!("old owner {}:{}", before.user, before.group));
                    lines.push(format!("new owner {}:{}", after.user, after.group));
                }
            }
            (None, None) => {}
        }
        for (name, what) in self.xattr_changes() {
            lines.push(format!("{what} attribute {}", quoted(name)));
        }
        lines
    }

    /// Extended attributes, access lists among them, and what became of each.
    fn xattr_changes(&self) -> Vec<(&[u8], &'static str)> {
        let old = xattrs(&self.before);
        let new = xattrs(&self.after);
        let mut changes = Vec::new();
        for (name, value) in new {
            match old.iter().find(|(of, _)| of == name) {
                None => changes.push((&**name, "new")),
                Some((_, before)) if before != value => changes.push((&**name, "changed")),
                Some(_) => {}
            }
        }
        // All that a deleted object had goes with it.
        if self.after.is_some() {
            let has_gone = |name: &[u8]| new.iter().all(|(of, _)| of != name);
            let gone = old.iter().map(|(name, _)| &**name);
            changes.extend(
                gone.filter(|name| has_gone(name))
                    .map(|name| (name, "deleted")),
            );
        }
        changes.sort();
        changes
    }

    /// With contents as a unified diff where they are text.
    pub fn json(&self) -> io::Result<String> {
        let mut diff = Vec::new();
        if let Sides::Text(old, new) = self.sides() {
            let mut painter = Painter::new(&mut diff);
            self.show_names(&mut painter)?;
            Comparison::new(old, new).show_hunks(&mut painter)?;
        }
        Ok(crate::output::to_json(&DifferenceJson {
            change: self.line.into(),
            before: self.before.as_ref().map(VersionJson::from),
            after: self.after.as_ref().map(VersionJson::from),
            contents: match self.sides() {
                Sides::Same => "same",
                Sides::Text(..) => "text",
                Sides::Binary => "binary",
                Sides::TooLong => "too_long",
            },
            diff: json::Text(&diff),
            attributes: self
                .xattr_changes()
                .into_iter()
                .map(|(name, change)| AttributeJson {
                    name: json::Text(name),
                    change,
                })
                .collect(),
        }))
    }
}

#[derive(Serialize)]
struct DifferenceJson<'a> {
    #[serde(flatten)]
    change: json::Change<'a>,
    before: Option<VersionJson>,
    after: Option<VersionJson>,
    contents: &'static str,
    diff: json::Text<'a>,
    attributes: Vec<AttributeJson<'a>>,
}

#[derive(Serialize)]
struct AttributeJson<'a> {
    name: json::Text<'a>,
    change: &'static str,
}

#[derive(Serialize)]
struct VersionJson {
    kind: &'static str,
    mode: String,
    user: u32,
    group: u32,
    length: u64,
    modified: String,
}

impl From<&Version> for VersionJson {
    fn from(version: &Version) -> VersionJson {
        VersionJson {
            kind: kind_word(version.kind),
            mode: format!("{:04o}", version.mode),
            user: version.user,
            group: version.group,
            length: version.length,
            modified: time::precise(version.modified),
        }
    }
}

fn described(version: &Version) -> String {
    let Version { kind, mode, .. } = version;
    let (kind, device) = (kind_word(*kind), version.device_number);
    match version.kind {
        Kind::CharacterDevice | Kind::BlockDevice => {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            format!("{kind} {major}:{minor} mode {mode:04o}")
        }
        Kind::File if mode & 0o6000 != 0 => {
            let words = set_id_words(*mode).join(", ");
            format!("{kind} mode {mode:04o} ({words})")
        }
        _ => format!("{kind} mode {mode:04o}"),
    }
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharacterDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

fn xattrs(side: &Option<Version>) -> &[(Vec<u8>, Vec<u8>)] {
    side.as_ref().map_or(&[], |version| &version.xattrs)
}

/// `None` when they are too long to be at hand.
fn contents(side: &Option<Version>) -> Option<&[u8]> {
    match side.as_ref().map(|version| &version.contents) {
        Some(Contents::Bytes(bytes)) => Some(bytes),
        Some(Contents::None) | None => Some(&[]),
        Some(Contents::TooLong) => None,
    }
}
