//! A transaction's changes as a patch in git's format. `git apply` turns a copy of the
//! snapshot's files into the view's.
//!
//! git's format covers files and symbolic links, and of a file's mode only whether it
//! is executable. Everything else is written in lines that start with `#`, which
//! `git apply` skips.

mod binary;
mod notes;
mod paths;

pub use paths::Affected;

use super::unified::Comparison;
use super::version::{Contents, Version};
use crate::output::{Painter, Style, quoted};
use atomdir::Kind;
use atomdir::client::ChangeLine;
use atomdir::client::three_way::is_binary;
use std::io;

/// One path, or both paths of a rename, with the object before and after.
pub struct FilePatch<'a> {
    pub(super) old_path: &'a [u8],
    pub(super) new_path: &'a [u8],
    pub(super) old: Option<Version>,
    pub(super) new: Option<Version>,
    /// Whether the patch also covers something below it.
    pub(super) has_below: bool,
    /// An outside writer has removed or replaced the object, so `new` is unknown.
    pub(super) is_gone: bool,
}

/// One side of a patch, for objects that git's format covers.
struct Side<'a> {
    mode: &'static str,
    version: &'a Version,
}

impl FilePatch<'_> {
    /// Whether it is about the paths of this change, and not about something below them.
    pub fn is_of(&self, line: &ChangeLine) -> bool {
        self.new_path == line.path || line.from.as_deref() == Some(self.old_path)
    }

    /// With `binary`, contents that are not text are shown as a binary patch.
    pub fn show(&self, painter: &mut Painter<'_>, binary: bool) -> io::Result<()> {
        for note in notes::notes(self) {
            painter.line(Style::Hint, format!("# {note}"))?;
        }
        if self.is_gone {
            return Ok(());
        }
        let (old, new) = (side(&self.old), side(&self.new));
        match (&old, &new) {
            (Some(before), Some(after)) if before.version.kind != after.version.kind => {
                self.show_sides(painter, old.as_ref(), None, binary)?;
                self.show_sides(painter, None, new.as_ref(), binary)
            }
            (None, None) => Ok(()),
            _ => self.show_sides(painter, old.as_ref(), new.as_ref(), binary),
        }?;
        match &old {
            Some(old) if old.version.is_of_now => show_beside_now(painter, old, new.as_ref()),
            _ => Ok(()),
        }
    }

    fn show_sides(
        &self,
        painter: &mut Painter<'_>,
        old: Option<&Side<'_>>,
        new: Option<&Side<'_>>,
        binary: bool,
    ) -> io::Result<()> {
        let is_renamed = old.is_some() && new.is_some() && self.old_path != self.new_path;
        let is_same = match (old, new) {
            (Some(old), Some(new)) => old.version.contents.is_same(&new.version.contents),
            _ => false,
        };
        let mode = |side: Option<&Side<'_>>| side.map(|side| side.mode);
        let is_of_now = old.is_some_and(|old| old.version.is_of_now);
        let is_shown = !is_same && !is_of_now;
        if !is_shown && new.is_some() && !is_renamed && mode(old) == mode(new) {
            return Ok(());
        }
        // For an added or deleted file both names are the one that it has.
        let (old_path, new_path) = match (old, new) {
            (None, _) => (self.new_path, self.new_path),
            (_, None) => (self.old_path, self.old_path),
            _ => (self.old_path, self.new_path),
        };
        let (old_name, new_name) = (prefixed("a/", old_path), prefixed("b/", new_path));
        let mut head = |line: String| painter.line(Style::Heading, line);
        head(format!("diff --git {old_name} {new_name}"))?;
        match (mode(old), mode(new)) {
            (None, Some(mode)) => head(format!("new file mode {mode}"))?,
            (Some(mode), None) => head(format!("deleted file mode {mode}"))?,
            (Some(old), Some(new)) if old != new => {
                head(format!("old mode {old}"))?;
                head(format!("new mode {new}"))?;
            }
            _ => {}
        }
        if is_renamed {
            if is_same {
                head("similarity index 100%".to_owned())?;
            }
            head(format!("rename from {}", quoted(old_path)))?;
            head(format!("rename to {}", quoted(new_path)))?;
        }
        if !is_shown {
            return Ok(());
        }
        let old_name = old.map_or("/dev/null", |_| &old_name);
        let new_name = new.map_or("/dev/null", |_| &new_name);
        let texts = contents(old).zip(contents(new));
        match texts {
            Some((old_text, new_text)) if !is_binary(old_text) && !is_binary(new_text) => {
                show_text(painter, (old_name, old_text), (new_name, new_text))
            }
            Some((old_bytes, new_bytes)) if binary => {
                binary::show(painter, old.map(|_| old_bytes), new.map(|_| new_bytes))
            }
            _ => painter.line(
                Style::Plain,
                format!("Binary files {old_name} and {new_name} differ"),
            ),
        }
    }
}

/// Shows how a file differs from what an outside writer has made of it, in comments: `git apply`
/// would take back what they did.
fn show_beside_now(
    painter: &mut Painter<'_>,
    old: &Side<'_>,
    new: Option<&Side<'_>>,
) -> io::Result<()> {
    let (Some(now), Some(text)) = (contents(Some(old)), contents(new)) else {
        return Ok(());
    };
    if is_binary(now) || is_binary(text) {
        return Ok(());
    }
    let mut hunks = Vec::new();
    Comparison::new(now, text).show_hunks(&mut Painter::new(&mut hunks))?;
    for line in hunks.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        painter.contents_line(Style::Hint, &[b"# ", line].concat())?;
    }
    Ok(())
}

fn show_text(
    painter: &mut Painter<'_>,
    (old_name, old): (&str, &[u8]),
    (new_name, new): (&str, &[u8]),
) -> io::Result<()> {
    // An empty file has no lines to add or remove.
    if old == new {
        return Ok(());
    }
    painter.line_of_patch(Style::Heading, &format!("--- {}", ended(old_name)))?;
    painter.line_of_patch(Style::Heading, &format!("+++ {}", ended(new_name)))?;
    Comparison::new(old, new).show_hunks(painter)
}

/// git and patch(1) expect a tab after a name that has a space.
fn ended(name: &str) -> String {
    let tab = if name.contains(' ') { "\t" } else { "" };
    format!("{name}{tab}")
}

/// Quotes a name with a space before a slash: otherwise git does not find the name's
/// end in its heading.
fn prefixed(prefix: &str, path: &[u8]) -> String {
    let name = quoted(&[prefix.as_bytes(), path].concat());
    match name.contains(" /") && !name.starts_with('"') {
        true => format!("\"{name}\""),
        false => name,
    }
}

fn side(version: &Option<Version>) -> Option<Side<'_>> {
    let version = version.as_ref()?;
    let mode = match version.kind {
        Kind::File if version.mode & 0o100 != 0 => "100755",
        Kind::File => "100644",
        Kind::Symlink => "120000",
        _ => return None,
    };
    Some(Side { mode, version })
}

/// Returns `None` if the contents are too long to be compared.
fn contents<'a>(side: Option<&Side<'a>>) -> Option<&'a [u8]> {
    match side.map(|side| &side.version.contents) {
        Some(Contents::Bytes(bytes)) => Some(bytes),
        Some(Contents::None) | None => Some(&[]),
        Some(Contents::TooLong) => None,
    }
}
