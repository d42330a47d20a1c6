//! The kernel's FUSE protocol as bytes: pure decoding and encoding.
//!
//! `linux/fuse.h` describes the messages. Names here follow our own style; a comment
//! gives the header's name where it differs. Every integer has the machine's byte
//! order. Nothing here trusts a length that came from outside: a request that does not
//! parse is [`Malformed`], never a panic.

mod directory;
pub(crate) mod flags;
mod init;
mod notify;
mod reader;
mod reply;
mod request;
pub(crate) mod ring;

pub use directory::{DirectoryWriter, PlainEntry};
pub use init::{Init, InitReply, Offer, ask_again, negotiate};
pub use notify::Notification;
pub use reader::Malformed;
pub use reply::{ReplyWriter, STATEFUL, decode_device, reply_header};
pub use request::{ForgetOne, Header, Operation, SetAttributesIn, decode_header, decode_operation};

/// The protocol's major version, and the oldest and newest minor versions
/// this code was written for (34: Linux 5.15).
pub const MAJOR_VERSION: u32 = 7;
pub const MINOR_VERSION_MIN: u32 = 34;
pub const MINOR_VERSION_MAX: u32 = 44;

pub const ROOT_NODE: u64 = 1;

/// The largest data part of one READ or WRITE.
pub const DATA_LENGTH_MAX: usize = 1 << 20;
/// The same in pages of 4 KiB.
pub const PAGES_MAX: u16 = 256;
/// The most that one read of the device may return: data plus any header.
pub const REQUEST_LENGTH_MAX: usize = DATA_LENGTH_MAX + 4096;
