//! Real programs, unchanged, inside one transaction: what they leave behind
//! and what they say must be as outside; and after an abort nothing of it may
//! have happened.

mod c_project;
mod git;
mod packages;
mod posix;
mod random_files;
mod sqlite;
mod survivors;
mod tools;
mod unappliable;

use std::env;

/// Lets a script reach the package registries from where direct ways are
/// closed: certificates and proxies of this machine, and nothing else of the
/// environment.
fn network_environment() -> String {
    const PASSED_ON: &[&str] = &["CERT", "SSL", "_PROXY", "_CA_"];
    env::vars()
        .filter(|(name, value)| {
            PASSED_ON
                .iter()
                .any(|part| name.to_uppercase().contains(part))
                && !value.contains('\'')
        })
        .map(|(name, value)| format!("export {name}='{value}'\n"))
        .collect()
}
