//! POSIX access control lists in their extended-attribute form (version 2):
//! a little-endian version word, then entries of tag, permissions and id.

use atomdir_disk::{Errno, Owner, Result};

use crate::base::credentials::Credentials;

pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Whether this sets no list: then one that is there goes.
pub(crate) fn is_empty(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes == VERSION.to_le_bytes()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessControlList {
    entries: Vec<AclEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

impl AccessControlList {
    /// The extended attribute that holds it.
    pub const ATTRIBUTE: &'static [u8] = ACCESS;

    pub fn decode(bytes: &[u8]) -> Result<AccessControlList> {
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
        let (chunks, tail) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !tail.is_empty() {
            return Err(Errno::INVAL);
        }
        let entry = |chunk: &[u8; 8]| AclEntry {
            tag: u16::from_le_bytes([chunk[0], chunk[1]]),
            permissions: u16::from_le_bytes([chunk[2], chunk[3]]),
            id: u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]),
        };
        let list = AccessControlList {
            entries: chunks.iter().map(entry).collect(),
        };
        let required = [USER_OBJECT, GROUP_OBJECT, OTHER];
        let known = required.iter().chain(&[USER, GROUP, MASK]);
        let valid =
            |entry: &AclEntry| entry.permissions <= 7 && known.clone().any(|tag| *tag == entry.tag);
        let complete = required.iter().all(|tag| list.get(*tag).is_some());
        if !complete || !list.entries.iter().all(valid) {
            return Err(Errno::INVAL);
        }
        Ok(list)
    }

    /// The list that the nine permission bits stand for.
    pub fn of_mode(mode: u32) -> AccessControlList {
        let entry = |tag, shift: u32| AclEntry {
            tag,
            permissions: (mode >> shift & 7) as u16,
            id: u32::MAX,
        };
        AccessControlList {
            entries: vec![
                entry(USER_OBJECT, 6),
                entry(GROUP_OBJECT, 3),
                entry(OTHER, 0),
            ],
        }
    }

    /// The permission bits that a user has. The bits of all matching groups are joined, which is
    /// right because callers ask for one bit at a time.
    pub fn permissions(&self, owner: Owner, credentials: &Credentials) -> u32 {
        let bits = |tag| u32::from(self.get(tag).unwrap_or(0));
        if credentials.user == owner.user {
            return bits(USER_OBJECT);
        }
        let mask = self.get(MASK).map_or(7, u32::from);
        let mut named = self.entries.iter().filter(|entry| entry.tag == USER);
        if let Some(entry) = named.find(|entry| entry.id == credentials.user) {
            return u32::from(entry.permissions) & mask;
        }
        let group_of = |entry: &AclEntry| match entry.tag {
            GROUP_OBJECT => Some(owner.group),
            GROUP => Some(entry.id),
            _ => None,
        };
        let matching = self
            .entries
            .iter()
            .filter(|entry| group_of(entry).is_some_and(|id| credentials.groups.contains(&id)));
        let of_groups = matching.map(|entry| u32::from(entry.permissions));
        match of_groups.reduce(|all, one| all | one) {
            Some(permissions) => permissions & mask,
            None => bits(OTHER),
        }
    }

    /// Whether the list lets any group write, or a user that it names and that
    /// `is_trusted` does not vouch for.
    pub fn names_writer(&self, is_trusted: impl Fn(u32) -> bool) -> bool {
        let mask = self.get(MASK).unwrap_or(7);
        self.entries.iter().any(|entry| {
            let is_named = match entry.tag {
                USER => !is_trusted(entry.id),
                GROUP => true,
                _ => false,
            };
            is_named && entry.permissions & mask & 2 != 0
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// Whether the list says no more than the nine permission bits can.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The permission bits that the list stands for.
    pub fn mode_bits(&self) -> u32 {
        let bits = |tag| u32::from(self.get(tag).unwrap_or(0));
        let group = self.get(MASK).map_or(bits(GROUP_OBJECT), u32::from);
        bits(USER_OBJECT) << 6 | group << 3 | bits(OTHER)
    }

    /// Changes the list as chmod does.
    pub fn set_mode_bits(&mut self, mode: u32) {
        let group_tag = if self.get(MASK).is_some() {
            MASK
        } else {
            GROUP_OBJECT
        };
        self.set(USER_OBJECT, mode >> 6 & 7);
        self.set(group_tag, mode >> 3 & 7);
        self.set(OTHER, mode & 7);
    }

    /// Returns what a new object inherits from this default list: its own list,
    /// and the requested permission bits that are left.
    pub fn inherit(&self, mode: u32) -> (AccessControlList, u32) {
        let mut list = self.clone();
        let kept = mode & (0o7000 | self.mode_bits());
        list.set_mode_bits(kept);
        (list, kept)
    }

    fn get(&self, tag: u16) -> Option<u16> {
        self.entries
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions)
    }

    fn set(&mut self, tag: u16, permissions: u32) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> AccessControlList {
        let entry = |&(tag, permissions)| AclEntry {
            tag,
            permissions,
            id: u32::MAX,
        };
        AccessControlList {
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn the_mask_stands_for_the_group_bits() {
        let mut acl = list(&[
            (USER_OBJECT, 7),
            (USER, 6),
            (GROUP_OBJECT, 5),
            (MASK, 7),
            (OTHER, 0),
        ]);
        assert_eq!(acl.mode_bits(), 0o770);
        acl.set_mode_bits(0o640);
        assert_eq!(acl.get(GROUP_OBJECT), Some(5));
        assert_eq!(acl.mode_bits(), 0o640);
        let (inherited, mode) = acl.inherit(0o4755);
        assert_eq!((inherited.mode_bits(), mode), (0o640, 0o4640));
    }

    #[test]
    fn the_first_class_that_matches_decides() {
        let mut acl = list(&[
            (USER_OBJECT, 4),
            (USER, 7),
            (GROUP_OBJECT, 0),
            (GROUP, 6),
            (MASK, 5),
            (OTHER, 7),
        ]);
        acl.entries[1].id = 7;
        acl.entries[3].id = 30;
        let owner = Owner { user: 1, group: 20 };
        let of = |user, groups: &[u32]| {
            let groups = groups.to_vec();
            acl.permissions(owner, &Credentials { user, groups })
        };
        assert_eq!(of(1, &[30]), 4, "the owner");
        assert_eq!(of(7, &[30]), 5, "a named user, masked");
        assert_eq!(of(8, &[20]), 0, "the owning group may less than others");
        assert_eq!(of(8, &[20, 30]), 4, "one of two groups");
        assert_eq!(of(8, &[9]), 7, "everybody else");
        let plain = AccessControlList::of_mode(0o640);
        let groups = vec![20];
        assert_eq!(
            plain.permissions(owner, &Credentials { user: 8, groups }),
            4
        );
    }

    #[test]
    fn named_writers_are_limited_by_the_mask() {
        let of = |named: (u16, u16), mask| {
            let (group, other) = ((GROUP_OBJECT, 7), (OTHER, 7));
            let mut acl = list(&[(USER_OBJECT, 7), named, group, (MASK, mask), other]);
            acl.entries[1].id = 7;
            acl
        };
        assert!(of((USER, 6), 7).names_writer(|_| false));
        assert!(!of((USER, 6), 7).names_writer(|user| user == 7));
        assert!(!of((USER, 6), 5).names_writer(|_| false), "masked");
        assert!(!of((USER, 5), 7).names_writer(|_| false));
        assert!(of((GROUP, 2), 7).names_writer(|_| true));
        assert!(!AccessControlList::of_mode(0o777).names_writer(|_| false));
    }

    #[test]
    fn malformed_acls_are_refused_and_valid_ones_round_trip() {
        let good = list(&[(USER_OBJECT, 6), (GROUP_OBJECT, 4), (OTHER, 4)]);
        assert!(good.is_minimal());
        assert_eq!(AccessControlList::decode(&good.encode()), Ok(good.clone()));
        let mut bad_version = good.encode();
        bad_version[0] = 1;
        for bytes in [&b""[..], b"\x02\0\0\0", &bad_version, &good.encode()[..11]] {
            assert_eq!(AccessControlList::decode(bytes), Err(Errno::INVAL));
        }
        let bad_bits = list(&[(USER_OBJECT, 9), (GROUP_OBJECT, 4), (OTHER, 4)]);
        assert_eq!(
            AccessControlList::decode(&bad_bits.encode()),
            Err(Errno::INVAL)
        );
    }
}
