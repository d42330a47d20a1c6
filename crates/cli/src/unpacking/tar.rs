//! Reads tar archives: the old format, POSIX's ustar and pax, and GNU's.

use super::{Entry, Item, Owner, Sink, invalid};
use rustix::fs::Timespec;
use std::io::{self, Read};
use tar::EntryType;

pub fn read(source: impl Read, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(source);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) || kind.as_byte() == b'V' {
            continue;
        }
        let Attributes { owner, modified } = Attributes::read(&mut entry)?;
        let path = entry.path_bytes().into_owned();
        let named = |text: &str| invalid(format!("{}: {text}", String::from_utf8_lossy(&path)));
        let target = || {
            let target = entry.link_name_bytes().map(|target| target.into_owned());
            target.ok_or_else(|| named("a link without a target"))
        };
        let item = match kind {
            EntryType::Directory => Item::Directory,
            // As the oldest tar writes directories.
            EntryType::Regular if path.ends_with(b"/") => Item::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Item::File,
            EntryType::Symlink => Item::Symlink(target()?),
            EntryType::Link => Item::Link(target()?),
            EntryType::Fifo => Item::Fifo,
            EntryType::Char | EntryType::Block => return Err(named("device nodes are refused")),
            other => {
                let kind = char::from(other.as_byte()).escape_default();
                return Err(named(&format!(
                    "entries of type '{kind}' are not supported"
                )));
            }
        };
        let mode = entry.header().mode()? & 0o7777;
        sink(&mut Entry {
            path,
            item,
            mode,
            owner: Some(owner),
            modified: Some(modified),
            contents: &mut entry,
        })?;
    }
    Ok(())
}

struct Attributes {
    owner: Owner,
    modified: Timespec,
}

impl Attributes {
    /// What a pax header says comes before what the entry's own header has room for.
    fn read<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Attributes> {
        let header = entry.header();
        let small = |number: u64| u32::try_from(number).map_err(|_| invalid("an odd owner"));
        let name = |bytes: Option<&[u8]>| {
            let text = std::str::from_utf8(bytes?).ok()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let mut owner = Owner {
            user: small(header.uid()?)?,
            group: small(header.gid()?)?,
            user_name: name(header.username_bytes()),
            group_name: name(header.groupname_bytes()),
        };
        let mut modified = Timespec {
            tv_sec: header.mtime()?.cast_signed(),
            tv_nsec: 0,
        };
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            let value = String::from_utf8_lossy(extension.value_bytes());
            let number = || value.parse().map_err(|_| invalid("an odd owner"));
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
        Ok(Attributes { owner, modified })
    }
}

/// Seconds since 1970 with a fraction, as `-12.5`.
fn time(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
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
