//! Reads tar archives: the old format, POSIX's ustar and pax, and GNU's.

use super::source::Source;
use super::{Entry, Item, Owner, Sink, invalid};
use rustix::fs::Timespec;
use std::io::{self, Read};
use tar::EntryType;

pub fn read(source: impl Read, sink: &mut Sink<'_>) -> io::Result<()> {
    let (mut source, watch) = Source::new(source);
    let mut archive = tar::Archive::new(&mut source);
    for entry in archive.entries()? {
        let mut entry = entry?;
        watch.expect_contents();
        let kind = entry.header().entry_type();
        if !matches!(kind, EntryType::XGlobalHeader) && kind.as_byte() != b'V' {
            read_entry(&mut entry, sink)?;
        }
        // The next entry is not looked for before these were read.
        io::copy(&mut entry, &mut io::sink())?;
        watch.expect_headers();
    }
    if !watch.has_end() {
        return Err(invalid("the archive is cut short: its end is missing"));
    }
    // Checksums of compressed archives come behind the last entry, and whoever writes to a pipe
    // must be able to write all.
    watch.expect_contents();
    io::copy(&mut source, &mut io::sink())?;
    Ok(())
}

fn read_entry<R: Read>(entry: &mut tar::Entry<'_, R>, sink: &mut Sink<'_>) -> io::Result<()> {
    let path = entry.path_bytes().into_owned();
    let (item, attributes) = match Attributes::read(entry) {
        Ok(attributes) => (item(entry, &path), attributes),
        Err(error) => (Item::Refused(error.to_string()), Attributes::default()),
    };
    sink(&mut Entry {
        path,
        item,
        mode: attributes.mode,
        owner: Some(attributes.owner),
        modified: Some(attributes.modified),
        length: entry.size(),
        contents: entry,
    })
}

fn item<R: Read>(entry: &tar::Entry<'_, R>, path: &[u8]) -> Item {
    let target = entry.link_name_bytes().map(|target| target.into_owned());
    match (entry.header().entry_type(), target) {
        (EntryType::Directory, _) => Item::Directory,
        // As the oldest tar writes directories.
        (EntryType::Regular, _) if path.ends_with(b"/") => Item::Directory,
        (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => Item::File,
        (EntryType::Symlink, Some(target)) => Item::Symlink(target),
        (EntryType::Link, Some(target)) => Item::Link(target),
        (EntryType::Symlink | EntryType::Link, None) => {
            Item::Refused("a link without a target".to_owned())
        }
        (EntryType::Fifo, _) => Item::Fifo,
        (EntryType::Char | EntryType::Block, _) => {
            Item::Refused("device nodes are refused".to_owned())
        }
        (other, _) => {
            let kind = char::from(other.as_byte()).escape_default();
            Item::Refused(format!("entries of type '{kind}' are not supported"))
        }
    }
}

struct Attributes {
    mode: u32,
    owner: Owner,
    modified: Timespec,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            mode: 0,
            owner: Owner::default(),
            modified: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
        }
    }
}

/// chown(2) takes the largest number to mean that nothing changes.
fn id(number: u64) -> io::Result<u32> {
    let number = u32::try_from(number)
        .ok()
        .filter(|number| *number != u32::MAX);
    number.ok_or_else(|| invalid("an odd owner"))
}

impl Attributes {
    /// What a pax header says comes before what the entry's own header has room for.
    fn read<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Attributes> {
        let header = entry.header();
        let name = |bytes: Option<&[u8]>| {
            let text = std::str::from_utf8(bytes?).ok()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let mut owner = Owner {
            user: id(header.uid()?)?,
            group: id(header.gid()?)?,
            user_name: name(header.username_bytes()),
            group_name: name(header.groupname_bytes()),
        };
        let mode = header.mode()? & 0o7777;
        let mut modified = Timespec {
            tv_sec: header.mtime()?.cast_signed(),
            tv_nsec: 0,
        };
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            let value = String::from_utf8_lossy(extension.value_bytes());
            let number = || id(value.parse().unwrap_or(u64::MAX));
            match extension.key_bytes() {
                b"uid" => owner.user = number()?,
                b"gid" => owner.group = number()?,
                b"uname" => owner.user_name = Some(value.into_owned()),
                b"gname" => owner.group_name = Some(value.into_owned()),
                b"mtime" => modified = time(&value).ok_or_else(|| invalid("an odd time"))?,
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(invalid(
                        "sparse files in pax format are not supported; tar --format=gnu makes others",
                    ));
                }
                _ => {}
            }
        }
        Ok(Attributes {
            mode,
            owner,
            modified,
        })
    }
}

/// Seconds since 1970 with a fraction, as `-12.5`.
fn time(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: i64 = digits.parse().ok()?;
    Some(match text.starts_with('-') && nanoseconds > 0 {
        true => Timespec {
            tv_sec: seconds.checked_sub(1)?,
            tv_nsec: 1_000_000_000 - nanoseconds,
        },
        false => Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fractions_and_may_be_before_1970() {
        let of = |text| time(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(of("12"), Some((12, 0)));
        assert_eq!(of("12.0000000019"), Some((12, 1)));
        assert_eq!(of("-0.25"), Some((-1, 750_000_000)));
        assert_eq!(of("-3.5"), Some((-4, 500_000_000)));
        assert_eq!(of("x"), None);
        assert_eq!(of("1.+5"), None);
    }
}
