//! Users and groups from the system's databases.

use atomdir_types::sync;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;

const BUFFER_LENGTH: usize = 16 << 10;
/// The buffer must have room for all members of a group.
const BUFFER_LENGTH_MAX: usize = 16 << 20;

/// A user, as the system knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: CString,
    /// The numeric id.
    pub user: u32,
    /// The primary group.
    pub group: u32,
    /// The home directory.
    pub home: PathBuf,
}

/// A group, as the system knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name.
    pub name: CString,
    /// The numeric id.
    pub group: u32,
    /// Users who have another primary group.
    pub members: Vec<CString>,
}

impl Account {
    /// Looks it up by its number.
    pub fn of(user: u32) -> Option<Account> {
        // SAFETY: `look_up` passes pointers to memory of the given length.
        look_up(|entry, buffer, length, found| unsafe {
            libc::getpwuid_r(user, entry, buffer, length, found)
        })
    }

    /// Looks it up by its name.
    pub fn named(name: &str) -> Option<Account> {
        let name = CString::new(name).ok()?;
        // SAFETY: as above; the name is a C string.
        look_up(|entry, buffer, length, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found)
        })
    }
}

/// All users that the databases list. A network database may not list its users.
pub(crate) fn accounts() -> Vec<Account> {
    static LIST: Mutex<()> = Mutex::new(());
    let _one_reader = sync::lock(&LIST);
    let mut accounts = Vec::new();
    // SAFETY: these functions share one position in the list and one buffer. The lock
    // excludes our other threads, and we copy each entry before we read the next.
    unsafe {
        libc::setpwent();
        while let Some(entry) = libc::getpwent().as_ref() {
            accounts.push(Account::read(entry));
        }
        libc::endpwent();
    }
    accounts
}

impl Group {
    /// Looks it up by its number.
    pub fn of(group: u32) -> Option<Group> {
        // SAFETY: as above.
        look_up(|entry, buffer, length, found| unsafe {
            libc::getgrgid_r(group, entry, buffer, length, found)
        })
    }

    /// Looks it up by its name.
    pub fn named(name: &str) -> Option<Group> {
        let name = CString::new(name).ok()?;
        // SAFETY: as above.
        look_up(|entry, buffer, length, found| unsafe {
            libc::getgrnam_r(name.as_ptr(), entry, buffer, length, found)
        })
    }
}

/// `root`, `user alice (1000)`, or `user 1000` for one without an entry.
pub fn describe_user(user: u32) -> String {
    match Account::of(user) {
        _ if user == 0 => "root".to_owned(),
        Some(account) => format!("user {} ({user})", account.name.to_string_lossy()),
        None => format!("user {user}"),
    }
}

trait Entry: Sized {
    type Raw;

    /// # Safety
    /// The entry must have been filled, and its buffer must still be there.
    unsafe fn read(raw: &Self::Raw) -> Self;
}

impl Entry for Account {
    type Raw = libc::passwd;

    unsafe fn read(raw: &libc::passwd) -> Account {
        // SAFETY: the caller's promise.
        let (name, home) = unsafe { (CStr::from_ptr(raw.pw_name), CStr::from_ptr(raw.pw_dir)) };
        Account {
            name: name.to_owned(),
            user: raw.pw_uid,
            group: raw.pw_gid,
            home: PathBuf::from(OsStr::from_bytes(home.to_bytes())),
        }
    }
}

impl Entry for Group {
    type Raw = libc::group;

    unsafe fn read(raw: &libc::group) -> Group {
        let mut members = Vec::new();
        let mut next = raw.gr_mem;
        // SAFETY: the caller's promise; a null pointer ends the list.
        let name = unsafe {
            while !(*next).is_null() {
                members.push(CStr::from_ptr(*next).to_owned());
                next = next.add(1);
            }
            CStr::from_ptr(raw.gr_name)
        };
        Group {
            name: name.to_owned(),
            group: raw.gr_gid,
            members,
        }
    }
}

/// Returns `None` if there is no such entry, or the database cannot be read.
fn look_up<E: Entry>(
    ask: impl Fn(*mut E::Raw, *mut libc::c_char, usize, *mut *mut E::Raw) -> libc::c_int,
) -> Option<E> {
    let mut buffer = vec![0 as libc::c_char; BUFFER_LENGTH];
    loop {
        let mut entry = MaybeUninit::<E::Raw>::uninit();
        let mut found = std::ptr::null_mut();
        let error = ask(
            entry.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        );
        if error == libc::ERANGE && buffer.len() < BUFFER_LENGTH_MAX {
            let length = buffer.len() * 4;
            buffer.resize(length, 0);
            continue;
        }
        if error != 0 || found.is_null() {
            return None;
        }
        // SAFETY: the entry was filled, and its strings lie in `buffer`.
        return Some(unsafe { E::read(entry.assume_init_ref()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_number_and_name() {
        let root = Account::of(0).expect("every system has root");
        assert_eq!(root, Account::named("root").expect("by name"));
        assert_eq!(Group::of(0), Group::named("root"));
        assert_eq!(describe_user(0), "root");
        assert_eq!(describe_user(4_000_000_000), "user 4000000000");
        assert_eq!(Account::named("no such\0user"), None);
        assert!(accounts().contains(&root));
    }
}
