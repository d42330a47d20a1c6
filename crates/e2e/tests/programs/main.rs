//! Real, unchanged programs inside one transaction. Their files and their output must be
//! the same as outside, and an abort must leave no trace of them.

mod c_project;
mod cargo;
mod git;
mod limits;
mod making;
mod mercurial;
mod node;
mod packages;
mod posix;
mod random_files;
mod sqlite;
mod survivors;
mod tools;
mod unappliable;
mod unpacking;
mod watching;

use std::env;

/// Lets a script reach the package registries where direct connections are blocked: it
/// gets this machine's certificates and proxies, and nothing else of the environment.
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
