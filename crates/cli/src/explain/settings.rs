use atomdir::client::{SETTING_KEYS, SettingsError};
use rustix::io::Errno;

use super::{ExitCode, Explain};

impl Explain for SettingsError {
    fn exit_code(&self) -> ExitCode {
        match self {
            SettingsError::UnknownKey { .. } | SettingsError::BadValue { .. } => ExitCode::Usage,
            SettingsError::Damaged { .. } => ExitCode::Configuration,
            SettingsError::NotOwner { .. } => ExitCode::NotPermitted,
            SettingsError::NotShareable { .. } | SettingsError::NotGuardable { .. } => {
                ExitCode::Configuration
            }
            SettingsError::Io { errno, .. } => match *errno {
                Errno::ACCESS | Errno::PERM => ExitCode::NotPermitted,
                _ => ExitCode::Io,
            },
            _ => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SettingsError::UnknownKey { .. } => {
                Some(format!("the settings are: {}", SETTING_KEYS.join(", ")))
            }
            SettingsError::Damaged { .. } => {
                Some("repair it in the control directory (the file `settings`, or `profiles`), or remove it".to_owned())
            }
            SettingsError::NotShareable { .. } => {
                Some("make it a store of root's, or let the others act as its owner".to_owned())
            }
            _ => None,
        }
    }
}
