//! `atomdir-deliver`, run as a mail server runs it.

mod exim;
mod kill;
mod others;
mod postfix;
mod rights;
mod support;
