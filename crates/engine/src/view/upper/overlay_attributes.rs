//! Overlay attributes: extended attributes in which overlayfs records what it
//! did to the objects of its upper layer (fs/overlayfs/overlayfs.h).

use crate::base::Xattrs;
use crate::ids::NodeId;
use crate::options::Privileges;

/// The prefix of the names of overlay attributes. An overlay uses one of the two
/// throughout. Attributes with the other one belong to programs and may have any
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayPrefix {
    Trusted,
    /// For an overlay mounted by an ordinary user, with the option `userxattr`.
    User,
}

impl OverlayPrefix {
    pub(crate) fn of(privileges: &Privileges) -> OverlayPrefix {
        if privileges.all {
            OverlayPrefix::Trusted
        } else {
            OverlayPrefix::User
        }
    }

    fn as_bytes(self) -> &'static [u8] {
        match self {
            OverlayPrefix::Trusted => b"trusted.overlay.",
            OverlayPrefix::User => b"user.overlay.",
        }
    }

    /// Whether a program set the attribute, in the namespace of the overlay attributes. overlayfs
    /// then inserts `overlay.` once more (Linux 6.7; it refused such names before).
    pub(super) fn is_escaped(self, name: &[u8]) -> bool {
        let own = name.strip_prefix(self.as_bytes());
        own.is_some_and(|own| own.starts_with(b"overlay."))
    }

    /// Where overlayfs keeps the flags `i` and `a` of chattr, which it does not set on the object.
    pub(super) fn has_flags(self, name: &[u8]) -> bool {
        name.strip_prefix(self.as_bytes()) == Some(b"protattr")
    }

    /// Whether an extended attribute is an overlay attribute.
    pub(crate) fn covers(self, name: &[u8]) -> bool {
        name.starts_with(self.as_bytes())
    }
}

#[derive(Default)]
pub(super) struct OverlayAttributes {
    /// Nothing of the lower layer shows through the directory.
    pub opaque: bool,
    /// The lower path that the directory, or the file's contents, come from.
    pub redirect: Option<Vec<u8>>,
    /// The contents are still the lower file's.
    pub metacopy: bool,
    /// The directory may hold objects of the lower layer.
    pub impure: bool,
    /// The kernel's handle of the lower object that this is a copy of. It is empty in an
    /// ordinary user's overlay.
    pub origin: Option<Vec<u8>>,
    /// The names of all overlay attributes of the object.
    pub names: Vec<Vec<u8>>,
    /// The object's own extended attributes.
    pub xattrs: Xattrs,
}

/// The identity that our FUSE file system gave the kernel for a lower object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub node: NodeId,
    pub generation: u32,
}

impl OverlayAttributes {
    /// `xattrs`: all extended attributes of an object of the upper layer.
    pub fn of(xattrs: Xattrs, overlay_prefix: OverlayPrefix) -> OverlayAttributes {
        let mut overlay = OverlayAttributes::default();
        for (name, value) in xattrs {
            let Some(attribute) = name.strip_prefix(overlay_prefix.as_bytes()) else {
                overlay.xattrs.push((name, value));
                continue;
            };
            match attribute {
                b"opaque" => overlay.opaque = true,
                b"redirect" => overlay.redirect = Some(value),
                b"metacopy" => overlay.metacopy = true,
                b"impure" => overlay.impure = true,
                b"origin" => overlay.origin = Some(value),
                _ => {}
            }
            overlay.names.push(name);
        }
        overlay
    }
}

/// The handle that FUSE makes of a node follows struct ovl_fb, which has 21
/// bytes. They include the 16 bytes of the file system's UUID.
const HANDLE_AT: usize = 21;
const MAGIC_AT: usize = 1;
const MAGIC: u8 = 0xfb;
const TYPE_AT: usize = 4;
/// FILEID_INO64_GEN.
const TYPE: u8 = 0x81;
const NODE_MASK: u64 = (1 << 40) - 1;

/// The type of a handle that a file system makes of an inode number of 32 bits and a generation
/// (FILEID_INO32_GEN): ext4, and XFS.
const TYPE_32: u8 = 1;
/// Types of handles that begin with a number of 64 bits: of XFS, and of Btrfs
/// (FILEID_BTRFS_WITHOUT_PARENT).
const TYPES_64: [u8; 2] = [0x81, 0x4d];

/// The inode number of an origin in the base itself.
pub(super) fn inode_of(origin: &[u8]) -> Option<u64> {
    if *origin.get(MAGIC_AT)? != MAGIC {
        return None;
    }
    let handle = origin.get(HANDLE_AT..)?;
    match *origin.get(TYPE_AT)? {
        TYPE_32 => Some(u32::from_ne_bytes(handle.get(..4)?.try_into().ok()?).into()),
        kind if TYPES_64.contains(&kind) => {
            Some(u64::from_ne_bytes(handle.get(..8)?.try_into().ok()?))
        }
        _ => None,
    }
}

impl Origin {
    pub fn decode(bytes: &[u8]) -> Option<Origin> {
        if *bytes.get(MAGIC_AT)? != MAGIC || *bytes.get(TYPE_AT)? != TYPE {
            return None;
        }
        let word = |number: usize| {
            let at = HANDLE_AT + 4 * number;
            let bytes = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let node = u64::from(word(0)?) << 32 | u64::from(word(1)?);
        Some(Origin {
            node: NodeId(node & NODE_MASK),
            generation: word(2)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_the_kernel_writes_it() {
        let mut bytes = vec![0, 0xfb, 33, 0, 0x81];
        bytes.extend([0; 16]);
        for word in [0x100u32, 7, 3] {
            bytes.extend(word.to_ne_bytes());
        }
        let origin = Origin::decode(&bytes);
        let expected = Origin {
            node: NodeId(7),
            generation: 3,
        };
        assert_eq!(origin, Some(expected));
        assert_eq!(Origin::decode(&bytes[..32]), None);
        assert_eq!(Origin::decode(&[]), None);
    }

    #[test]
    fn an_origin_in_the_base_has_its_inode_number() {
        let header = |kind| [vec![0, 0xfb, 29, 0, kind], vec![0; 16]].concat();
        let ext4 = [header(1), vec![0x0d, 0, 0, 0, 7, 0, 0, 0]].concat();
        assert_eq!(inode_of(&ext4), Some(13));
        let large = (1_u64 << 40).to_ne_bytes();
        for kind in [0x81, 0x4d] {
            let other = [header(kind), large.to_vec(), vec![7, 0, 0, 0]].concat();
            assert_eq!(inode_of(&other), Some(1 << 40));
        }
        assert_eq!(inode_of(&header(1)), None);
        assert_eq!(inode_of(&[]), None);
    }
}
