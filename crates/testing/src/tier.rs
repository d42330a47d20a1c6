//! The two tiers of tests: the quick forms for every change, and the long forms.

pub fn full_tier() -> bool {
    std::env::var_os("ATOMDIR_TIER").is_some_and(|tier| tier == "full")
}

/// The value for the tier that runs.
pub fn pick<T>(quick: T, full: T) -> T {
    if full_tier() { full } else { quick }
}
