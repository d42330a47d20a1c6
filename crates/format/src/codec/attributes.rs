//! The attributes of a view's node.

use atomdir_disk::{Kind, NodeAttributes, Owner};

use crate::primitives::{Reader, Result, Writer};

pub(super) fn put_owner(writer: &mut Writer, owner: Owner) {
    writer.number(owner.user.into());
    writer.number(owner.group.into());
}

pub(super) fn take_owner(reader: &mut Reader<'_>) -> Result<Owner> {
    Ok(Owner {
        user: reader.number_u32()?,
        group: reader.number_u32()?,
    })
}

pub(super) fn put_attributes(writer: &mut Writer, attributes: &NodeAttributes) {
    let (mode, links) = (attributes.mode.into(), attributes.links.into());
    for number in [attributes.inode, mode, links] {
        writer.number(number);
    }
    put_owner(writer, attributes.owner);
    let (length, blocks) = (attributes.length, attributes.blocks);
    for number in [attributes.device_number, length, blocks] {
        writer.number(number);
    }
    for time in [attributes.accessed, attributes.modified, attributes.changed] {
        writer.time(time);
    }
}

/// The kind is encoded elsewhere.
pub(super) fn take_attributes(reader: &mut Reader<'_>, kind: Kind) -> Result<NodeAttributes> {
    Ok(NodeAttributes {
        inode: reader.number()?,
        kind,
        mode: reader.number_u32()?,
        links: reader.number_u32()?,
        owner: take_owner(reader)?,
        device_number: reader.number()?,
        length: reader.number()?,
        blocks: reader.number()?,
        accessed: reader.time()?,
        modified: reader.time()?,
        changed: reader.time()?,
    })
}
