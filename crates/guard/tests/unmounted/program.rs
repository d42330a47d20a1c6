//! The calls of a program, through the guard or in a view.

use std::collections::BTreeMap;

use atomdir_disk::{
    Errno, Kind, LinuxDisk, NewNode, NodeAttributes, RenameMode, Result, SetAttributes,
};
use atomdir_engine::{Caller, NodeId, Transaction};
use atomdir_fuse::{Filesystem, Request};
use atomdir_guard::Guarded;

use crate::model::{Body, Object, Operation, Tree, describe};

const MARK: &[u8] = b"user.mark";
pub const ROOT: u64 = 1;

/// This process.
pub const REQUEST: Request = Request {
    unique: 0,
    user: 0,
    group: 0,
    process: 0,
};

fn caller() -> Caller {
    Caller {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    }
}

/// The calls of a file system. What is found is to be forgotten once.
pub trait Files {
    fn find(&self, directory: u64, name: &[u8]) -> Result<(u64, NodeAttributes)>;
    fn forget(&self, node: u64);
    fn names(&self, directory: u64) -> Result<Vec<(Vec<u8>, u64)>>;
    fn attributes(&self, node: u64) -> Result<NodeAttributes>;
    fn contents(&self, node: u64, length: usize) -> Result<Vec<u8>>;
    fn target(&self, node: u64) -> Result<Vec<u8>>;
    fn mark(&self, node: u64) -> Result<Vec<u8>>;
    fn write(&self, node: u64, offset: Option<u64>, data: &[u8]) -> Result<()>;
    fn change(&self, node: u64, change: SetAttributes) -> Result<()>;
    fn set_mark(&self, node: u64, mark: Option<u8>) -> Result<()>;
    fn create(&self, directory: u64, name: &[u8], what: NewNode, mode: u32) -> Result<()>;
    fn link(&self, node: u64, directory: u64, name: &[u8]) -> Result<()>;
    fn unlink(&self, directory: u64, name: &[u8]) -> Result<()>;
    fn remove_directory(&self, directory: u64, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()>;
}

impl Files for Guarded {
    fn find(&self, directory: u64, name: &[u8]) -> Result<(u64, NodeAttributes)> {
        let found = self
            .lookup(&REQUEST, directory, name)?
            .ok_or(Errno::NOENT)?;
        Ok((found.node, found.attributes))
    }

    fn forget(&self, node: u64) {
        Filesystem::forget(self, node, 1);
    }

    fn names(&self, directory: u64) -> Result<Vec<(Vec<u8>, u64)>> {
        let listed = self.list(&REQUEST, directory)?.into_iter();
        Ok(listed
            .map(|entry| (entry.name.as_bytes().to_vec(), entry.inode))
            .collect())
    }

    fn attributes(&self, node: u64) -> Result<NodeAttributes> {
        Ok(Filesystem::attributes(self, &REQUEST, node)?.0)
    }

    fn contents(&self, node: u64, length: usize) -> Result<Vec<u8>> {
        let mut contents = vec![0; length];
        let count = self.read(&REQUEST, node, 0, &mut contents)?;
        contents.truncate(count);
        Ok(contents)
    }

    fn target(&self, node: u64) -> Result<Vec<u8>> {
        self.read_link(&REQUEST, node)
    }

    fn mark(&self, node: u64) -> Result<Vec<u8>> {
        self.xattr(&REQUEST, node, MARK)
    }

    fn write(&self, node: u64, offset: Option<u64>, data: &[u8]) -> Result<()> {
        match offset {
            Some(offset) => Filesystem::write(self, &REQUEST, node, offset, data, false),
            // As far as the kernel knows.
            None => self.append(&REQUEST, node, 0, data, false),
        }
    }

    fn change(&self, node: u64, change: SetAttributes) -> Result<()> {
        self.set_attributes(&REQUEST, node, change).map(drop)
    }

    fn set_mark(&self, node: u64, mark: Option<u8>) -> Result<()> {
        match mark {
            Some(mark) => self.set_xattr(&REQUEST, node, MARK, &[mark], 0, false),
            None => self.remove_xattr(&REQUEST, node, MARK),
        }
    }

    fn create(&self, directory: u64, name: &[u8], what: NewNode, mode: u32) -> Result<()> {
        let made = Filesystem::create(self, &REQUEST, directory, name, what, mode, 0)?;
        Files::forget(self, made.node);
        Ok(())
    }

    fn link(&self, node: u64, directory: u64, name: &[u8]) -> Result<()> {
        let linked = Filesystem::link(self, &REQUEST, node, directory, name)?;
        Files::forget(self, linked.node);
        Ok(())
    }

    fn unlink(&self, directory: u64, name: &[u8]) -> Result<()> {
        Filesystem::unlink(self, &REQUEST, directory, name)
    }

    fn remove_directory(&self, directory: u64, name: &[u8]) -> Result<()> {
        Filesystem::remove_directory(self, &REQUEST, directory, name)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()> {
        Filesystem::rename(self, &REQUEST, from, to, mode)
    }
}

impl Files for Transaction<LinuxDisk> {
    fn find(&self, directory: u64, name: &[u8]) -> Result<(u64, NodeAttributes)> {
        let found = self.lookup(NodeId(directory), name)?;
        Ok((found.node.0, found.attributes))
    }

    fn forget(&self, node: u64) {
        Transaction::forget(self, NodeId(node), 1);
    }

    fn names(&self, directory: u64) -> Result<Vec<(Vec<u8>, u64)>> {
        let listed = self.list(NodeId(directory))?.into_iter();
        Ok(listed
            .map(|entry| (entry.name.as_bytes().to_vec(), entry.inode))
            .collect())
    }

    fn attributes(&self, node: u64) -> Result<NodeAttributes> {
        Transaction::attributes(self, NodeId(node))
    }

    fn contents(&self, node: u64, length: usize) -> Result<Vec<u8>> {
        let mut contents = vec![0; length];
        let count = self.read(NodeId(node), 0, &mut contents, caller())?;
        contents.truncate(count);
        Ok(contents)
    }

    fn target(&self, node: u64) -> Result<Vec<u8>> {
        self.read_link(NodeId(node))
    }

    fn mark(&self, node: u64) -> Result<Vec<u8>> {
        self.xattr(NodeId(node), MARK)
    }

    fn write(&self, node: u64, offset: Option<u64>, data: &[u8]) -> Result<()> {
        let node = NodeId(node);
        let offset = match offset {
            Some(offset) => offset,
            None => self.length(node)?,
        };
        Transaction::write(self, node, offset, data, false).map(drop)
    }

    fn change(&self, node: u64, change: SetAttributes) -> Result<()> {
        self.set_attributes(NodeId(node), change, caller())
            .map(drop)
    }

    fn set_mark(&self, node: u64, mark: Option<u8>) -> Result<()> {
        match mark {
            Some(mark) => self.set_xattr(NodeId(node), MARK, &[mark], 0, false),
            None => self.remove_xattr(NodeId(node), MARK),
        }
    }

    fn create(&self, directory: u64, name: &[u8], what: NewNode, mode: u32) -> Result<()> {
        let made = Transaction::create(self, NodeId(directory), name, what, mode, 0, caller())?;
        Files::forget(self, made.node.0);
        Ok(())
    }

    fn link(&self, node: u64, directory: u64, name: &[u8]) -> Result<()> {
        let linked = Transaction::link(self, NodeId(node), NodeId(directory), name)?;
        Files::forget(self, linked.node.0);
        Ok(())
    }

    fn unlink(&self, directory: u64, name: &[u8]) -> Result<()> {
        Transaction::unlink(self, NodeId(directory), name)
    }

    fn remove_directory(&self, directory: u64, name: &[u8]) -> Result<()> {
        Transaction::remove_directory(self, NodeId(directory), name)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()> {
        Transaction::rename(self, NodeId(from.0), from.1, NodeId(to.0), to.1, mode)
    }
}

/// Runs `act` with the object at a path.
fn at<T>(files: &dyn Files, path: &[String], act: impl FnOnce(u64) -> Result<T>) -> Result<T> {
    let mut known = Vec::new();
    let mut node = ROOT;
    let mut found = Ok(());
    for name in path {
        match files.find(node, name.as_bytes()) {
            Ok((next, _)) => {
                known.push(next);
                node = next;
            }
            Err(errno) => {
                found = Err(errno);
                break;
            }
        }
    }
    let done = found.and_then(|()| act(node));
    known.into_iter().for_each(|node| files.forget(node));
    done
}

/// Runs `act` with the directory of a path, and the name.
fn above<T>(
    files: &dyn Files,
    path: &[String],
    act: impl FnOnce(u64, &[u8]) -> Result<T>,
) -> Result<T> {
    let (name, above) = path.split_last().ok_or(Errno::INVAL)?;
    at(files, above, |directory| act(directory, name.as_bytes()))
}

pub fn run(files: &dyn Files, operation: &Operation) -> Result<()> {
    let require_file = |node| match files.attributes(node)?.kind {
        Kind::File => Ok(()),
        _ => Err(Errno::INVAL),
    };
    // The kernel refuses such changes of links.
    let require_no_link = |node| match files.attributes(node)?.kind {
        Kind::Symlink => Err(Errno::OPNOTSUPP),
        _ => Ok(()),
    };
    let create = |path: &[String], what: NewNode, mode| {
        above(files, path, |directory, name| {
            files.create(directory, name, what, mode)
        })
    };
    match operation {
        Operation::Write(path, offset, length, byte) => at(files, path, |node| {
            require_file(node)?;
            files.write(node, Some(*offset as u64), &vec![*byte; *length])
        }),
        Operation::Append(path, length, byte) => at(files, path, |node| {
            require_file(node)?;
            files.write(node, None, &vec![*byte; *length])
        }),
        Operation::Cut(path, length) => at(files, path, |node| {
            require_file(node)?;
            let length = Some(*length as u64);
            files.change(
                node,
                SetAttributes {
                    length,
                    ..SetAttributes::default()
                },
            )
        }),
        Operation::Mode(path, mode) => at(files, path, |node| {
            require_no_link(node)?;
            let mode = Some(*mode);
            files.change(
                node,
                SetAttributes {
                    mode,
                    ..SetAttributes::default()
                },
            )
        }),
        Operation::Mark(path, mark) => at(files, path, |node| {
            require_no_link(node)?;
            files.set_mark(node, *mark)
        }),
        Operation::File(path, mode) => create(path, NewNode::File, *mode),
        Operation::Directory(path, mode) => create(path, NewNode::Directory, *mode),
        Operation::Symlink(path, to) => {
            create(path, NewNode::Symlink(to.to_string().into_bytes()), 0o777)
        }
        Operation::Link(from, to) => at(files, from, |node| {
            // The kernel refuses that.
            if files.attributes(node)?.kind == Kind::Directory {
                return Err(Errno::PERM);
            }
            above(files, to, |directory, name| {
                files.link(node, directory, name)
            })
        }),
        Operation::Unlink(path) => above(files, path, |node, name| files.unlink(node, name)),
        Operation::RemoveDirectory(path) => {
            above(files, path, |node, name| files.remove_directory(node, name))
        }
        Operation::Rename(from, to, mode) => above(files, from, |old, name| {
            above(files, to, |new, new_name| {
                files.rename((old, name), (new, new_name), *mode)
            })
        }),
    }
}

/// Shows the tree with the modification time of each object and the number of names of each file.
pub fn look(files: &dyn Files) -> Result<(Tree, Tree)> {
    let mut seen = (Tree::new(), Tree::new());
    walk(files, ROOT, "", &mut BTreeMap::new(), &mut seen)?;
    Ok(seen)
}

fn walk(
    files: &dyn Files,
    directory: u64,
    path: &str,
    firsts: &mut BTreeMap<u64, String>,
    seen: &mut (Tree, Tree),
) -> Result<()> {
    let mut names = files.names(directory)?;
    names.retain(|(name, _)| !(path.is_empty() && name == b".atomdir"));
    names.sort();
    for (name, inode) in names {
        let path = [
            path,
            if path.is_empty() { "" } else { "/" },
            &String::from_utf8_lossy(&name),
        ]
        .concat();
        let (node, attributes) = files.find(directory, &name)?;
        let mark = match files.mark(node) {
            Ok(mark) => mark.first().copied(),
            Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP) => None,
            Err(errno) => return Err(errno),
        };
        let body = match attributes.kind {
            Kind::Directory => Body::Directory(BTreeMap::new()),
            Kind::File => Body::File(files.contents(node, attributes.length as usize)?),
            _ => Body::Symlink(files.target(node)?),
        };
        let mode = attributes.mode;
        let first = firsts
            .entry(attributes.inode)
            .or_insert_with(|| path.clone());
        let mut description = describe(&Object { body, mode, mark }, first);
        if attributes.inode != inode {
            description.push_str(", listed as another");
        }
        let links = match attributes.kind {
            Kind::Directory => 0,
            _ => attributes.links,
        };
        seen.0.insert(path.clone(), description);
        seen.1
            .insert(path.clone(), format!("{:?} {links}", attributes.modified));
        if attributes.kind == Kind::Directory {
            walk(files, node, &path, firsts, seen)?;
        }
        files.forget(node);
    }
    Ok(())
}
