//! The exit codes of the design. All others come from the command that is run.

pub const USAGE: i32 = 64;
pub const NO_SUCH: i32 = 66;
pub const INTERNAL: i32 = 70;
pub const CANNOT_CREATE: i32 = 73;
pub const INPUT_OUTPUT: i32 = 74;
pub const CONFLICT: i32 = 75;
pub const NOT_PERMITTED: i32 = 77;
pub const CONFIGURATION: i32 = 78;
