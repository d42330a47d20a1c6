//! The library as programs use it, as root and as an ordinary user.

mod basics;
mod documents;
mod examples;
mod holding;
mod kill;
mod namespaces;
mod retry;
mod support;
