//! `atomdir-deliver`, driven as a mail server drives it.

mod exim;
mod kill;
mod others;
mod postfix;
mod rights;
mod support;
