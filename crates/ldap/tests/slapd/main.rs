//! slapd with `atomdir-ldap`, beside slapd with its own back-ldif.
#![cfg(test)]

mod agreement;
mod isolation;
mod kill;
mod support;
