//! Finding the object at a path in a view, as openat2(2) does with RESOLVE_BENEATH: nothing
//! above the root is reached, neither by `..` nor by a symbolic link, and no absolute target is
//! followed.

use super::permission::Rights;
use super::session::Engine;
use atomdir_disk::{Errno, Kind, Result};
use atomdir_engine::{Entry, NodeAttributes, NodeId, Permission};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// As in the kernel.
const LINKS_MAX: u32 = 40;

/// A node that the view keeps while this lives.
pub(super) struct Known<'a> {
    engine: &'a Engine,
    pub(super) node: NodeId,
    pub(super) attributes: NodeAttributes,
}

impl<'a> Known<'a> {
    /// The entry must come from a call that counts as a lookup.
    pub(super) fn new(engine: &'a Engine, entry: Entry) -> Known<'a> {
        Known {
            engine,
            node: entry.node,
            attributes: entry.attributes,
        }
    }

    fn root(engine: &'a Engine) -> Result<Known<'a>> {
        Ok(Known {
            engine,
            node: NodeId::ROOT,
            attributes: engine.attributes(NodeId::ROOT)?,
        })
    }
}

impl Known<'_> {
    /// The node, which the view keeps from now on until the caller forgets it.
    pub(super) fn into_node(mut self) -> NodeId {
        std::mem::replace(&mut self.node, NodeId::ROOT)
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        // The view never forgets its root.
        if self.node != NodeId::ROOT {
            self.engine.forget(self.node, 1);
        }
    }
}

/// Where a path leads.
pub(super) struct PathEnd<'a> {
    /// The directory that has the path's last name. If the path ends in `..` or is empty, the
    /// object itself.
    pub(super) directory: Known<'a>,
    /// `None` if the path ends in `..` or is empty: then it names the directory.
    pub(super) name: Option<OsString>,
    /// `None` if nothing has the name.
    pub(super) object: Option<Known<'a>>,
}

impl<'a> PathEnd<'a> {
    /// The object, which must exist.
    pub(super) fn existing(self) -> Result<Known<'a>> {
        match (self.name, self.object) {
            (None, _) => Ok(self.directory),
            (Some(_), object) => object.ok_or(Errno::NOENT),
        }
    }

    /// The last name. A path without one fails with `errno`.
    pub(super) fn name(&self, errno: Errno) -> Result<&[u8]> {
        self.name.as_deref().map(OsStr::as_bytes).ok_or(errno)
    }
}

enum Step {
    /// The object that the path reaches must be a directory.
    Here,
    Up,
    Down(OsString),
}

/// Looks the path up. `follow`: whether a symbolic link that has the last name is followed.
pub(super) fn walk<'a>(
    engine: &'a Engine,
    rights: &Rights,
    path: &Path,
    follow: bool,
) -> Result<PathEnd<'a>> {
    let mut steps = steps(path)?;
    let mut above: Vec<Known<'a>> = Vec::new();
    let mut at = Known::root(engine)?;
    let mut links = 0;
    while let Some(step) = steps.pop_front() {
        if at.attributes.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        rights.require(engine, at.node, &at.attributes, Permission::Search)?;
        let name = match step {
            Step::Here => continue,
            Step::Up => {
                at = above.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            Step::Down(name) => name,
        };
        let is_last = steps.is_empty();
        let object = match engine.lookup(at.node, name.as_bytes()) {
            Ok(entry) => Some(Known::new(engine, entry)),
            Err(Errno::NOENT) if is_last => None,
            Err(errno) => return Err(errno),
        };
        let is_link = |object: &Known<'_>| object.attributes.kind == Kind::Symlink;
        match object {
            Some(link) if is_link(&link) && (follow || !is_last) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                // Like the kernel, only for the last name of the whole path.
                if is_last {
                    rights.may_follow(&at.attributes, &link.attributes)?;
                }
                let target = PathBuf::from(OsString::from_vec(engine.read_link(link.node)?));
                // A slash at the end of a target counts, and so does a dot.
                if target.as_os_str().as_bytes().ends_with(b"/")
                    || target.as_os_str().as_bytes().ends_with(b"/.")
                {
                    steps.push_front(Step::Here);
                }
                for step in self::steps(&target)?.into_iter().rev() {
                    steps.push_front(step);
                }
            }
            object if is_last => {
                return Ok(PathEnd {
                    directory: at,
                    name: Some(name),
                    object,
                });
            }
            Some(next) => above.push(std::mem::replace(&mut at, next)),
            None => return Err(Errno::NOENT),
        }
    }
    Ok(PathEnd {
        directory: at,
        name: None,
        object: None,
    })
}

fn steps(path: &Path) -> Result<VecDeque<Step>> {
    let mut steps = VecDeque::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => steps.push_back(Step::Up),
            Component::Normal(name) => steps.push_back(Step::Down(name.to_owned())),
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    Ok(steps)
}
