use std::fmt;

/// What is lost with a log that is not in the control directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostLog {
    /// The base has every commit up to this one, durably.
    pub in_base: u64,
    /// The newest commit that is known to have been applied.
    pub applied: u64,
    /// The machine has run on since then, so the base has it.
    pub is_in_base: bool,
}

impl fmt::Display for LostLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostLog {
            in_base, applied, ..
        } = self;
        match (applied > in_base, self.is_in_base) {
            (false, _) => write!(
                formatter,
                "the base has every commit up to {in_base}; only the log knows which came later"
            ),
            (true, true) => write!(
                formatter,
                "the base has every commit up to {applied}, though perhaps not yet durably those \
                 after {in_base}; only the log knows which came later"
            ),
            (true, false) => write!(
                formatter,
                "the base has every commit up to {in_base}; later ones, at least up to {applied}, \
                 may be missing in it or be there in part; only the log knows which came after \
                 these"
            ),
        }
    }
}
