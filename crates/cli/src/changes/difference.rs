use super::rights::set_id_words;
use super::unified::Comparison;
use super::version::{Contents, Version};
use crate::output::{Painter, Style, json, quoted, time};
use atomdir::Kind;
use atomdir::client::ChangeLine;
use atomdir::client::three_way::is_binary;
use serde::Serialize;
use std::io;

/// A change, with the object before and after it.
pub struct Difference<'a> {
    pub(super) line: &'a ChangeLine,
    /// The path in the snapshot.
    pub(super) old_path: Vec<u8>,
    pub(super) before: Option<Version>,
    pub(super) after: Option<Version>,
    /// An outside writer has removed or replaced the object, so `after` is unknown.
    pub(super) is_gone: bool,
}

/// A change of a text's lines and of nothing else.
pub struct TextChange {
    pub old: Vec<u8>,
    pub new: Vec<u8>,
}

/// How the contents differ, in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    Counted {
        added: u64,
        removed: u64,
    },
    Binary,
    TooLong,
    /// The state that the transaction found, or its own, is no longer known.
    ChangedOutside,
}

/// The contents to compare.
enum Sides<'a> {
    Same,
    Text(&'a [u8], &'a [u8]),
    Binary,
    TooLong,
}

impl Difference<'_> {
    pub fn lines(&self) -> Lines {
        if self.is_changed_outside() {
            return Lines::ChangedOutside;
        }
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

    /// The texts, if the change is one of a text's lines and of nothing else; otherwise why not.
    pub(super) fn into_texts(self) -> Result<TextChange, Option<&'static str>> {
        let (Some(old), Some(new)) = (self.before, self.after) else {
            return Err(None);
        };
        let attributes = |version: &Version| {
            let owner = (version.user, version.group);
            (version.kind, version.mode, owner, version.xattrs.clone())
        };
        if old.kind != Kind::File {
            return Err(None);
        }
        if old.is_of_now {
            return Err(Some("an outside writer has changed it as well"));
        }
        if attributes(&old) != attributes(&new) {
            return Err(Some(
                "its mode, owner or extended attributes have changed as well",
            ));
        }
        match (old.contents, new.contents) {
            (Contents::Bytes(old), Contents::Bytes(new))
                if old != new && !is_binary(&old) && !is_binary(&new) =>
            {
                Ok(TextChange { old, new })
            }
            (Contents::Bytes(old), Contents::Bytes(new)) if old == new => Err(None),
            (Contents::Bytes(_), Contents::Bytes(_)) => Err(Some("it is no text")),
            _ => Err(Some("it is too long")),
        }
    }

    /// Whether one side is unknown: the state that the transaction found, or its own.
    fn is_changed_outside(&self) -> bool {
        self.is_gone || self.before.as_ref().is_some_and(|before| before.is_of_now)
    }

    fn show_names(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let name = |side: &Option<Version>, letter: &str, path: &[u8]| match side {
            Some(_) => quoted(&[letter.as_bytes(), path].concat()),
            None => "/dev/null".to_owned(),
        };
        let old = name(&self.before, "a/", &self.old_path);
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

    /// Includes contents as a unified diff if they are text.
    pub fn json(&self) -> io::Result<String> {
        let mut diff = Vec::new();
        if let (Sides::Text(old, new), false) = (self.sides(), self.is_gone) {
            let mut painter = Painter::new(&mut diff);
            self.show_names(&mut painter)?;
            Comparison::new(old, new).show_hunks(&mut painter)?;
        }
        Ok(crate::output::to_json(&DifferenceJson {
            change: self.line.into(),
            before: self.before.as_ref().map(VersionJson::from),
            after: self.after.as_ref().map(VersionJson::from),
            contents: match self.sides() {
                _ if self.is_changed_outside() => "changed_outside",
                Sides::Same => "same",
                Sides::Text(..) => "text",
                Sides::Binary => "binary",
                Sides::TooLong => "too_long",
            },
            diff: json::Text(&diff),
            attributes: xattr_changes(self.before.as_ref(), self.after.as_ref())
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

/// The object's kind and mode, and a device's number.
pub(super) fn described(version: &Version) -> String {
    let Version { kind, mode, .. } = version;
    let (kind, device) = (kind_word(*kind), version.device_number);
    match version.kind {
        Kind::CharacterDevice | Kind::BlockDevice => {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            format!("{kind} {major}:{minor}, mode {mode:04o}")
        }
        Kind::File if mode & 0o6000 != 0 => {
            let words = set_id_words(*mode).join(", ");
            format!("{kind}, mode {mode:04o} ({words})")
        }
        _ => format!("{kind}, mode {mode:04o}"),
    }
}

pub(super) fn kind_word(kind: Kind) -> &'static str {
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

/// The changed extended attributes, including access lists, each with its change.
pub(super) fn xattr_changes<'a>(
    before: Option<&'a Version>,
    after: Option<&'a Version>,
) -> Vec<(&'a [u8], &'static str)> {
    // A deleted object loses all its attributes, which need not be listed.
    let Some(after) = after else {
        return Vec::new();
    };
    let (old, new) = (
        before.map_or(&[][..], |before| &before.xattrs),
        &after.xattrs,
    );
    let mut changes = Vec::new();
    for (name, value) in new {
        match old.iter().find(|(of, _)| of == name) {
            None => changes.push((&**name, "new")),
            Some((_, before)) if before != value => changes.push((&**name, "changed")),
            Some(_) => {}
        }
    }
    for (name, _) in old {
        if new.iter().all(|(of, _)| of != name) {
            changes.push((&**name, "deleted"));
        }
    }
    changes.sort();
    changes
}

/// Returns `None` if the contents were too long to read.
fn contents(side: &Option<Version>) -> Option<&[u8]> {
    match side.as_ref().map(|version| &version.contents) {
        Some(Contents::Bytes(bytes)) => Some(bytes),
        Some(Contents::None) | None => Some(&[]),
        Some(Contents::TooLong) => None,
    }
}
