//! The two tiers of tests: those for every change, and the long forms.

pub fn full_tier() -> bool {
    std::env::var_os("ATOMDIR_TIER").is_some_and(|tier| tier == "full")
}

/// The size of something in the tier that runs.
pub fn pick<T>(quick: T, full: T) -> T {
    if full_tier() { full } else { quick }
}
