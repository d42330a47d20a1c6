//! A store's settings: the file `settings` in its control directory, with a key
//! and a value on each line (docs/format.md). Keys of newer versions are left
//! unchanged.

mod allow;
mod choice;
mod file;
mod guard;
mod history;
mod profiles;

pub use allow::Allow;
pub use guard::GuardChoice;
pub use history::History;
pub use profiles::{
    BadLine, FILES_WHOLE, Profile, ProfileOption, change_profiles, check_program, is_comment,
    is_header, parse_profiles, profile_of, profiles, profiles_in, split_option,
};

use choice::Choice;
use file::TextFile;

use crate::StoreLocation;
use crate::api::StoreError;
use crate::resolvers::Patterns;
use atomdir_disk::reason;
use atomdir_protocol::ViewChoice;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

const FILE: TextFile = TextFile {
    name: "settings",
    name_new: "settings.new",
    mode: Mode::RUSR.union(Mode::WUSR),
};

/// Who may use the store besides its owner and root.
pub const ALLOW: &str = "allow";

/// Which kind of view commands get if they ask for none.
pub const VIEW: &str = "view";

/// For how long what commits replace is kept, or `off`.
pub const HISTORY_AGE: &str = "history-age";

/// How much space that may take.
pub const HISTORY_SPACE: &str = "history-space";

/// Which time files get that a transaction has written: that of the write, or of the commit.
pub const TIMES: &str = "times";

/// The words of [`TIMES`]; the first is the default.
pub const TIMES_WORDS: [&str; 2] = ["write", "commit"];

/// The names of files to which programs only append, so that a commit appends to what others have
/// appended.
pub const APPEND: &str = "append";

/// Whether each service of the store mounts a guard.
pub const GUARD: &str = "guard";

/// Whether what programs outside transactions change through a guard is kept in the history.
pub const GUARD_HISTORY: &str = "guard-history";

/// Who wins if a program outside changes through a guard what an open transaction has written.
pub const GUARD_WRITERS: &str = "guard-writers";

/// All keys, in the order in which they are shown.
pub const KEYS: [&str; 9] = [
    ALLOW,
    VIEW,
    HISTORY_AGE,
    HISTORY_SPACE,
    TIMES,
    APPEND,
    GUARD,
    GUARD_HISTORY,
    GUARD_WRITERS,
];

/// Those that a copy keeps. A program that adds a setting decides whether it is one of them.
const KEPT_OF_COPY: [&str; 6] = [
    VIEW,
    HISTORY_AGE,
    TIMES,
    APPEND,
    GUARD_HISTORY,
    GUARD_WRITERS,
];

const VIEWS: Choice<ViewChoice> = Choice {
    key: VIEW,
    words: &[
        ("auto", ViewChoice::Auto),
        ("exact", ViewChoice::Exact),
        ("native", ViewChoice::Native),
        ("exclusive", ViewChoice::Exclusive),
    ],
};

/// Whether files get the time of the commit.
const AT_COMMIT: Choice<bool> = Choice {
    key: TIMES,
    words: &[(TIMES_WORDS[0], false), (TIMES_WORDS[1], true)],
};

const REMEMBERS: Choice<bool> = Choice {
    key: GUARD_HISTORY,
    words: &[("off", false), ("on", true)],
};

/// Whether calls of programs outside wait for open transactions.
const CALLS_WAIT: Choice<bool> = Choice {
    key: GUARD_WRITERS,
    words: &[("win", false), ("wait", true)],
};

/// Why settings cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no setting of that name.
    #[error("there is no setting '{key}'")]
    UnknownKey {
        /// The setting.
        key: String,
    },
    /// The value does not fit the setting.
    #[error("'{value}' cannot be the value of '{key}': {reason}")]
    BadValue {
        /// The setting.
        key: &'static str,
        /// The value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// The settings cannot be understood.
    #[error("the settings of the store '{store}' are damaged: {reason}")]
    Damaged {
        /// The store's root.
        store: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Only the owner of the store can change its settings.
    #[error("only the owner of the store '{store}' and root may change its settings")]
    NotOwner {
        /// The store's root.
        store: PathBuf,
    },
    /// Only a store of root's can be shared.
    #[error("the store '{store}' is not root's, so nobody else can enter its views")]
    NotShareable {
        /// The store's root.
        store: PathBuf,
    },
    /// Only over a store of root's a guard can be mounted.
    #[error(
        "the store '{store}' is not root's, so its service cannot mount a guard, which lies over the \
         store's path for all users"
    )]
    NotGuardable {
        /// The store's root.
        store: PathBuf,
    },
    /// They were changed, but do not take effect before the store is opened anew; or this process
    /// was forked after it had opened the store, and nothing was done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A system call failed.
    #[error("cannot {operation} the settings of the store '{store}': {errno}", errno = reason(errno))]
    Io {
        /// The store's root.
        store: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}

/// A store's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    values: BTreeMap<String, String>,
}

impl Settings {
    /// The words that a setting can be set to, besides lists and numbers. Empty for an unknown one.
    pub fn words(key: &str) -> Vec<&'static str> {
        match key {
            VIEW => VIEWS.words(),
            HISTORY_AGE => vec![history::OFF],
            HISTORY_SPACE => vec![history::AUTO],
            TIMES => AT_COMMIT.words(),
            GUARD => guard::CHOICE.words(),
            GUARD_HISTORY => REMEMBERS.words(),
            GUARD_WRITERS => CALLS_WAIT.words(),
            _ => Vec::new(),
        }
    }

    /// Reads the settings of a store; the caller must be its owner or root.
    pub fn of(store: &StoreLocation) -> Result<Settings, SettingsError> {
        let control = file::open_control(store, OFlags::RDONLY)?;
        Settings::read(&control).map_err(|error| error.of(store))
    }

    /// Reads the settings in a control directory. There is no file before the
    /// first change.
    pub fn read(control: impl AsFd) -> Result<Settings, ReadError> {
        let text = FILE.read(control)?;
        Settings::parse(&text).map_err(ReadError::Damaged)
    }

    fn parse(text: &str) -> Result<Settings, String> {
        let mut values = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Some((key, value)) = line.split_once(' ') else {
                return Err(format!("the line '{line}' has no value"));
            };
            values.insert(key.to_owned(), value.to_owned());
        }
        Ok(Settings { values })
    }

    fn encode(&self) -> String {
        let lines = self.values.iter();
        lines
            .map(|(key, value)| format!("{key} {value}\n"))
            .collect()
    }

    /// Who may use the store besides its owner.
    pub fn allow(&self) -> Result<Allow, SettingsError> {
        Allow::parse(self.value(ALLOW))
    }

    /// The kind of view that transactions get.
    pub fn view(&self) -> Result<ViewChoice, SettingsError> {
        VIEWS.parse(self.value(VIEW))
    }

    /// How much is kept of what commits replace; `None`: nothing.
    pub fn history(&self) -> Result<Option<History>, SettingsError> {
        let age = history::parse_age(self.value(HISTORY_AGE))?;
        let space = history::parse_space(self.value(HISTORY_SPACE))?;
        Ok(age.map(|age| History { age, space }))
    }

    /// Whether files that transactions have written get the time of the commit.
    pub fn times_at_commit(&self) -> Result<bool, SettingsError> {
        AT_COMMIT.parse(self.value(TIMES))
    }

    /// Whether what programs outside change through a guard is kept in the history.
    pub fn remembers_outside(&self) -> Result<bool, SettingsError> {
        REMEMBERS.parse(self.value(GUARD_HISTORY))
    }

    /// Whether programs outside that change through a guard what an open transaction has written wait
    /// until that one ends.
    pub fn outside_waits(&self) -> Result<bool, SettingsError> {
        CALLS_WAIT.parse(self.value(GUARD_WRITERS))
    }

    /// Whether each service of the store mounts a guard.
    pub fn guard(&self) -> Result<GuardChoice, SettingsError> {
        guard::CHOICE.parse(self.value(GUARD))
    }

    /// The files to which both sides may append.
    pub(crate) fn appended(&self) -> Patterns {
        Patterns::parse(self.value(APPEND))
    }

    /// The value as users see it.
    pub fn show(&self, key: &str) -> Result<String, SettingsError> {
        Ok(match known(key)? {
            ALLOW => self.allow()?.to_string(),
            HISTORY_AGE => history::show_age(history::parse_age(self.value(HISTORY_AGE))?),
            HISTORY_SPACE => history::parse_space(self.value(HISTORY_SPACE))?.to_string(),
            TIMES => AT_COMMIT.shown(self.value(TIMES))?,
            GUARD_HISTORY => REMEMBERS.shown(self.value(GUARD_HISTORY))?,
            GUARD_WRITERS => CALLS_WAIT.shown(self.value(GUARD_WRITERS))?,
            APPEND => self.appended().shown(),
            GUARD => guard::CHOICE.shown(self.value(GUARD))?,
            _ => VIEWS.shown(self.value(VIEW))?,
        })
    }

    /// An empty text means the default.
    fn value(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// Changes one setting of a store. An empty value restores the default.
    pub fn change(store: &StoreLocation, key: &str, value: &str) -> Result<(), SettingsError> {
        let key = known(key)?;
        require_owner(store)?;
        let mut settings = Settings::of(store)?;
        let encoded = match key {
            ALLOW => settings.allow()?.changed(value)?.encode(),
            _ if value.is_empty() => String::new(),
            HISTORY_AGE => history::show_age(history::parse_age(value)?),
            HISTORY_SPACE => history::parse_space(value)?.to_string(),
            TIMES => AT_COMMIT.shown(value)?,
            GUARD_HISTORY => REMEMBERS.shown(value)?,
            GUARD_WRITERS => CALLS_WAIT.shown(value)?,
            APPEND => parse_append(value)?.shown(),
            GUARD => guard::CHOICE.shown(value)?,
            _ => VIEWS.shown(value)?,
        };
        if key == ALLOW && store.owner != 0 && !encoded.is_empty() {
            let store = store.root.clone();
            return Err(SettingsError::NotShareable { store });
        }
        if key == GUARD && store.owner != 0 && guard::CHOICE.parse(value)? != GuardChoice::Off {
            let store = store.root.clone();
            return Err(SettingsError::NotGuardable { store });
        }
        if encoded.is_empty() {
            settings.values.remove(key);
        } else {
            settings.values.insert(key.to_owned(), encoded);
        }
        FILE.change(store, &settings.encode())
    }

    /// Keeps of a copied store's settings only those that admit nobody and loosen no limit. None of a
    /// file that cannot be understood.
    pub(crate) fn keep_of_copy(control: &OwnedFd, owner: u32) -> Result<(), Errno> {
        let mut settings = match Settings::read(control) {
            Ok(settings) => settings,
            Err(ReadError::Damaged(_)) => Settings::default(),
            Err(ReadError::Io(errno)) => return Err(errno),
        };
        settings
            .values
            .retain(|key, _| KEPT_OF_COPY.contains(&key.as_str()));
        FILE.write(control, owner, &settings.encode())
    }
}

/// Why a control directory's settings cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// They cannot be understood.
    #[error("the settings are damaged: {0}")]
    Damaged(String),
    /// A system call failed.
    #[error("the settings cannot be read: {}", reason(.0))]
    Io(Errno),
}

impl ReadError {
    fn of(self, store: &StoreLocation) -> SettingsError {
        let store = store.root.clone();
        match self {
            ReadError::Damaged(reason) => SettingsError::Damaged { store, reason },
            ReadError::Io(errno) => SettingsError::Io {
                store,
                operation: "read",
                errno,
            },
        }
    }
}

fn known(key: &str) -> Result<&'static str, SettingsError> {
    let found = KEYS.into_iter().find(|known| *known == key);
    found.ok_or_else(|| SettingsError::UnknownKey {
        key: key.to_owned(),
    })
}

fn parse_append(text: &str) -> Result<Patterns, SettingsError> {
    match text.contains('\n') {
        false => Ok(Patterns::parse(text)),
        true => Err(SettingsError::BadValue {
            key: APPEND,
            value: text.to_owned(),
            reason: "it is a list of names on one line".to_owned(),
        }),
    }
}

fn require_owner(store: &StoreLocation) -> Result<(), SettingsError> {
    let user = geteuid().as_raw();
    match user == 0 || user == store.owner {
        true => Ok(()),
        false => Err(SettingsError::NotOwner {
            store: store.root.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_newer_versions_stay() {
        let text = "allow 5\nnewer thing with blanks\n";
        let settings = Settings::parse(text).expect("well-formed");
        assert_eq!(settings.encode(), text);
        assert!(Settings::parse("allow\n").is_err());
    }
}
