//! The recipient of a message, and the user whose rights the delivery has.
//!
//! Invariants:
//! 1. Run by root, the program takes the recipient's user id and groups, and drops all other rights,
//!    before it reads the message or opens a file of the recipient. It resolves no path of the
//!    recipient's with root's rights. It never delivers to root.
//! 2. Run by another user, it has that user's rights, and the kernel decides what it may write. The
//!    recipient must be that user if the mailbox is the default one.

use crate::failure::Failure;
use atomdir::client::{Account, Allow, io_reason};
use rustix::process::{geteuid, getgroups};
use std::path::PathBuf;

/// NGROUPS_MAX of Linux.
const GROUPS_MAX: usize = 65_536;

/// A user to whom a message is delivered.
#[derive(Debug)]
pub struct Recipient {
    /// Checked by `check_name`.
    pub name: String,
    /// `None` for users without an account, whom only the mail server knows.
    account: Option<Account>,
}

impl Recipient {
    /// Looks the user up; `None` is the caller. A user needs an account if no mailbox is given, or if
    /// root runs the program, which must know whose rights to take.
    pub fn find(name: Option<&str>, has_mailbox: bool) -> Result<Recipient, Failure> {
        let caller = geteuid().as_raw();
        let account = match name {
            Some(name) => Account::named(check_name(name)?),
            None => Account::of(caller),
        };
        let Some(account) = account else {
            let shown = name.map_or(format!("with id {caller}"), |name| format!("'{name}'"));
            let name = name.unwrap_or("this user");
            return match has_mailbox && caller != 0 {
                true => Ok(Recipient {
                    name: name.to_owned(),
                    account: None,
                }),
                false => Err(Failure::NoUser(format!("there is no user {shown}"))),
            };
        };
        let name = account.name.to_string_lossy();
        let name = check_name(&name)?.to_owned();
        if caller == 0 && account.user == 0 {
            return Err(Failure::NotPermitted(
                "mail is not delivered to root; give root an alias".to_owned(),
            ));
        }
        if caller != 0 && caller != account.user && !has_mailbox {
            let message = format!("only '{name}' and root can deliver to '{name}'");
            return Err(Failure::NotPermitted(message));
        }
        Ok(Recipient {
            name,
            account: Some(account),
        })
    }

    /// The home directory, if the user has an account.
    pub fn home(&self) -> Option<PathBuf> {
        self.account.as_ref().map(|account| account.home.clone())
    }

    /// Acts with the rights that the recipient has for files, in a program that root runs. `None` if
    /// these cannot be taken on.
    pub fn with_rights<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let account = self.account.as_ref()?;
        let before = getgroups().ok()?;
        let raw: Vec<libc::gid_t> = before.iter().map(|group| group.as_raw()).collect();
        // SAFETY: the name is a C string, the rest are numbers; no other thread runs yet.
        let is_done = unsafe {
            libc::initgroups(account.name.as_ptr(), account.group) == 0
                && libc::setegid(account.group) == 0
                && libc::seteuid(account.user) == 0
        };
        let done = is_done.then(act);
        // SAFETY: numbers, and a list of the given length; no other thread runs yet.
        let is_back = unsafe {
            libc::seteuid(0) == 0
                && libc::setegid(0) == 0
                && libc::setgroups(raw.len(), raw.as_ptr()) == 0
        };
        assert!(is_back, "the program cannot take its own rights back");
        done
    }

    /// Whether a store's list of users has the recipient.
    pub fn is_in(&self, allow: &Allow) -> bool {
        self.account.as_ref().is_some_and(|account| {
            let mut groups = vec![0; GROUPS_MAX];
            let mut count = GROUPS_MAX as libc::c_int;
            // SAFETY: the name is a C string, and the list has room for that many groups.
            let found = unsafe {
                let groups = groups.as_mut_ptr();
                libc::getgrouplist(account.name.as_ptr(), account.group, groups, &mut count)
            };
            groups.truncate(usize::try_from(found).unwrap_or(0));
            allow.holds(account.user, &groups)
        })
    }

    /// If root runs the program, becomes the recipient for good.
    pub fn drop_privileges(&self) -> Result<(), Failure> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let account = self.account.as_ref();
        let account =
            account.ok_or_else(|| Failure::NoUser(format!("there is no user '{}'", self.name)))?;
        let (user, group) = (account.user, account.group);
        // SAFETY: the name is a C string, the rest are numbers; no other thread runs yet.
        let is_done = unsafe {
            libc::initgroups(account.name.as_ptr(), group) == 0
                && libc::setresgid(group, group, group) == 0
                && libc::setresuid(user, user, user) == 0
        };
        if !is_done {
            let error = std::io::Error::last_os_error();
            return Err(Failure::again(
                &format!("cannot become the user '{}'", self.name),
                io_reason(&error),
            ));
        }
        Ok(())
    }
}

/// Refuses a name that would change the meaning of a path when it becomes a part of it.
fn check_name(name: &str) -> Result<&str, Failure> {
    let is_odd = |c: char| c == '/' || c.is_control();
    if name.is_empty() || name.len() > 200 || name.starts_with(['.', '-']) || name.contains(is_odd)
    {
        return Err(Failure::NoUser(format!("'{name}' is not a user name")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_change_a_path_are_refused() {
        for name in ["", ".", "..", "../ann", "a/b", "-d", ".ann", "a\nb", "a\0b"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["ann", "ann+list@example.org", "ann.b"] {
            assert_eq!(check_name(name), Ok(name));
        }
    }
}
