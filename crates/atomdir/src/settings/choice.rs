//! Settings whose value is one of a few words.

use super::SettingsError;

/// The words of a setting, and what each stands for. The first is the default.
pub(super) struct Choice<T: 'static> {
    pub key: &'static str,
    pub words: &'static [(&'static str, T)],
}

impl<T: Copy + PartialEq> Choice<T> {
    pub fn words(&self) -> Vec<&'static str> {
        self.words.iter().map(|(word, _)| *word).collect()
    }

    /// An empty text means the default.
    pub fn parse(&self, text: &str) -> Result<T, SettingsError> {
        let mut words = self.words.iter();
        let found = words.find(|(word, _)| text.is_empty() || *word == text);
        if let Some((_, value)) = found {
            return Ok(*value);
        }
        let words = self.words();
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        Err(SettingsError::BadValue {
            key: self.key,
            value: text.to_owned(),
            reason: format!("it is one of {} and {last}", others.join(", ")),
        })
    }

    pub fn word(&self, value: T) -> &'static str {
        let mut words = self.words.iter();
        let found = words.find(|(_, one)| *one == value);
        found.map_or(self.words[0].0, |(word, _)| *word)
    }

    /// The word for a text, as users see it and as the file has it.
    pub fn shown(&self, text: &str) -> Result<String, SettingsError> {
        Ok(self.word(self.parse(text)?).to_owned())
    }
}
