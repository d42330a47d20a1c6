//! The users and groups that may use a store besides its owner and root.

use super::{ALLOW, SettingsError};
use crate::accounts::{Account, Group};
use std::collections::BTreeSet;
use std::fmt;

/// Users and groups that may use a store. They are kept as numbers: a name may
/// come to mean somebody else, and the service must not wait for a user database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allow {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

impl Allow {
    /// Parses `USER,@GROUP`, as names or numbers.
    pub fn parse(text: &str) -> Result<Allow, SettingsError> {
        let bad = |reason: String| SettingsError::BadValue {
            key: ALLOW,
            value: text.to_owned(),
            reason,
        };
        let mut allow = Allow::default();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            if let Some(group) = one.strip_prefix('@') {
                let named = || Group::named(group).map(|found| found.group);
                let number = group.parse().ok().or_else(named);
                let number = number.ok_or_else(|| bad(format!("there is no group '{group}'")))?;
                allow.groups.insert(number);
            } else {
                let named = || Account::named(one).map(|found| found.user);
                let number = one.parse().ok().or_else(named);
                let number = number.ok_or_else(|| bad(format!("there is no user '{one}'")))?;
                allow.users.insert(number);
            }
        }
        Ok(allow)
    }

    /// Changes a list: `+USER,-@GROUP` adds and removes. A text without signs replaces it.
    pub fn changed(&self, text: &str) -> Result<Allow, SettingsError> {
        let ones = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let is_signed = |one: &str| one.starts_with(['+', '-']);
        let signed = ones.clone().filter(|one| is_signed(one)).count();
        if signed == 0 {
            return Allow::parse(text);
        }
        if signed < ones.clone().count() {
            return Err(SettingsError::BadValue {
                key: ALLOW,
                value: text.to_owned(),
                reason: "either all users and groups have a sign, + or -, or none has".to_owned(),
            });
        }
        let mut allow = self.clone();
        for one in ones {
            let (sign, name) = one.split_at(1);
            let Allow { users, groups } = Allow::parse(name)?;
            if sign == "+" {
                allow.users.extend(users);
                allow.groups.extend(groups);
            } else {
                allow.users.retain(|user| !users.contains(user));
                allow.groups.retain(|group| !groups.contains(group));
            }
        }
        Ok(allow)
    }

    /// The numbers of the users, and of the groups after `@`, between commas.
    pub fn encode(&self) -> String {
        let users = self.users.iter().map(u32::to_string);
        let groups = self.groups.iter().map(|group| format!("@{group}"));
        users.chain(groups).collect::<Vec<_>>().join(",")
    }

    /// Whether the list holds this user or one of these groups.
    pub fn holds(&self, user: u32, groups: &[u32]) -> bool {
        self.users.contains(&user) || groups.iter().any(|group| self.groups.contains(group))
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: std::ffi::CString| name.to_string_lossy().into_owned();
        let user =
            |id: &u32| Account::of(*id).map_or_else(|| id.to_string(), |found| name(found.name));
        let group = |id: &u32| {
            let found = Group::of(*id).map_or_else(|| id.to_string(), |found| name(found.name));
            format!("@{found}")
        };
        let all = self.users.iter().map(user);
        let all: Vec<String> = all.chain(self.groups.iter().map(group)).collect();
        formatter.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_kept_as_numbers_and_shown_by_name() {
        let allow = Allow::parse("root, 4000000000,@root,@4000000001").expect("all are known");
        assert_eq!(allow.encode(), "0,4000000000,@0,@4000000001");
        assert_eq!(allow.to_string(), "root,4000000000,@root,@4000000001");
        assert_eq!(Allow::parse(&allow.encode()).as_ref(), Ok(&allow));
        assert!(allow.holds(4_000_000_000, &[7]) && allow.holds(7, &[8, 4_000_000_001]));
        assert!(!allow.holds(7, &[8]) && !Allow::default().holds(0, &[0]));
        let changed = |text| allow.changed(text).map(|changed| changed.encode());
        assert_eq!(
            changed("+5,-@root, -0").as_deref(),
            Ok("5,4000000000,@4000000001")
        );
        assert_eq!(changed("-7").as_deref(), Ok("0,4000000000,@0,@4000000001"));
        assert_eq!(
            changed("5").as_deref(),
            Ok("5"),
            "a text without signs replaces the list"
        );
        assert!(changed("+5,6").is_err() && changed("+no-such-user").is_err());
        for bad in ["no-such-user", "@no-such-group", "-1", "@", "a b"] {
            assert!(Allow::parse(bad).is_err(), "{bad}");
        }
    }
}
