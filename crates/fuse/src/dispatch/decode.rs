//! Turns the kernel's numbers into a file system's arguments.

use atomdir_disk::{Errno, Kind, Timestamp};

use crate::filesystem::{NewNode, Result, SetAttributes, SetTime};
use crate::wire::{self, SetAttributesIn, flags};

pub fn new_node(mode: u32, device: u32) -> Result<NewNode> {
    let device = wire::decode_device(device);
    let kind = match mode & Kind::TYPE_MASK {
        // mknod(2): no type means a regular file
        0 => Some(Kind::File),
        _ => Kind::of_mode(mode),
    };
    match kind {
        Some(Kind::File) => Ok(NewNode::File),
        Some(Kind::Fifo) => Ok(NewNode::Fifo),
        Some(Kind::Socket) => Ok(NewNode::Socket),
        Some(Kind::CharacterDevice) => Ok(NewNode::CharacterDevice(device)),
        Some(Kind::BlockDevice) => Ok(NewNode::BlockDevice(device)),
        Some(Kind::Directory | Kind::Symlink) | None => Err(Errno::INVAL),
    }
}

pub fn change(change: &SetAttributesIn) -> SetAttributes {
    let has = |bit| change.valid & bit != 0;
    let time = |bit, now, seconds: u64, nanoseconds| {
        if has(now) {
            Some(SetTime::Now)
        } else {
            let at = Timestamp {
                seconds: seconds as i64,
                nanoseconds,
            };
            has(bit).then_some(SetTime::At(at))
        }
    };
    SetAttributes {
        mode: has(flags::set::MODE).then_some(change.mode & 0o7777),
        user: has(flags::set::USER).then_some(change.user),
        group: has(flags::set::GROUP).then_some(change.group),
        length: has(flags::set::LENGTH).then_some(change.length),
        accessed: time(
            flags::set::ACCESSED,
            flags::set::ACCESSED_NOW,
            change.accessed_seconds,
            change.accessed_nanoseconds,
        ),
        modified: time(
            flags::set::MODIFIED,
            flags::set::MODIFIED_NOW,
            change.modified_seconds,
            change.modified_nanoseconds,
        ),
        kill_set_id: has(flags::set::KILL_SET_ID),
    }
}
