//! Whether each service of a store mounts a guard.

use super::{GUARD, SettingsError};

/// What the service of a store does about a guard when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuardChoice {
    /// It mounts none by itself.
    #[default]
    Off,
    /// It mounts one, or does not start.
    On,
    /// As `On`, and what a call changes is flushed before the call returns.
    Sync,
}

impl GuardChoice {
    /// The word for it in the settings.
    pub fn word(self) -> &'static str {
        word(self)
    }
}

/// The first is the default.
pub(super) const WORDS: [(&str, GuardChoice); 3] = [
    ("off", GuardChoice::Off),
    ("on", GuardChoice::On),
    ("sync", GuardChoice::Sync),
];

/// An empty text means the default.
pub(super) fn parse(text: &str) -> Result<GuardChoice, SettingsError> {
    let found = WORDS.into_iter().find(|(word, _)| *word == text);
    match found {
        Some((_, choice)) => Ok(choice),
        None if text.is_empty() => Ok(GuardChoice::Off),
        None => Err(SettingsError::BadValue {
            key: GUARD,
            value: text.to_owned(),
            reason: "it is one of off, on and sync".to_owned(),
        }),
    }
}

pub(super) fn word(choice: GuardChoice) -> &'static str {
    let found = WORDS.into_iter().find(|(_, one)| *one == choice);
    found.map_or("off", |(word, _)| word)
}
