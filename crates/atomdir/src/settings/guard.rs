//! Whether each service of a store mounts a guard.

use super::GUARD;
use super::choice::Choice;

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
        CHOICE.word(self)
    }
}

pub(super) const CHOICE: Choice<GuardChoice> = Choice {
    key: GUARD,
    words: &[
        ("off", GuardChoice::Off),
        ("on", GuardChoice::On),
        ("sync", GuardChoice::Sync),
    ],
};
