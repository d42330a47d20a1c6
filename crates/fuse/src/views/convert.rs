//! Converts between the engine's types and those of a file system's answers.

use atomdir_engine as engine;

use crate::filesystem::{ListEntry, NewNode, NodeAttributes, Request, SetAttributes, SetTime};

pub fn caller(request: &Request) -> engine::Caller {
    engine::Caller {
        user: request.user,
        group: request.group,
    }
}

pub fn attributes(from: engine::NodeAttributes) -> NodeAttributes {
    NodeAttributes {
        inode: from.inode,
        kind: from.kind,
        mode: from.mode,
        links: from.links,
        owner: from.owner,
        device_number: from.device_number,
        length: from.length,
        blocks: from.blocks,
        accessed: from.accessed,
        modified: from.modified,
        changed: from.changed,
    }
}

pub fn new_node(from: NewNode<'_>) -> engine::NewNode {
    match from {
        NewNode::File => engine::NewNode::File,
        NewNode::Directory => engine::NewNode::Directory,
        NewNode::Symlink(target) => engine::NewNode::Symlink(target.to_vec()),
        NewNode::Fifo => engine::NewNode::Fifo,
        NewNode::Socket => engine::NewNode::Socket,
        NewNode::CharacterDevice(number) => engine::NewNode::CharacterDevice(number),
        NewNode::BlockDevice(number) => engine::NewNode::BlockDevice(number),
    }
}

pub fn change(from: SetAttributes) -> engine::SetAttributes {
    let time = |time| match time {
        SetTime::Now => engine::SetTime::Now,
        SetTime::At(at) => engine::SetTime::At(at),
    };
    engine::SetAttributes {
        mode: from.mode,
        user: from.user,
        group: from.group,
        length: from.length,
        accessed: from.accessed.map(time),
        modified: from.modified.map(time),
        kill_set_id: from.kill_set_id,
    }
}

pub fn list_entry(from: engine::ListEntry) -> ListEntry {
    ListEntry {
        name: from.name,
        inode: from.inode,
        kind: from.kind,
    }
}
