use serde::{Deserialize, Serialize};

/// The restrictions under which a process runs. A process inherits them from the one that started
/// it, and a service, which works for others, cannot leave all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The inode number by which the kernel identifies the namespace; 0 if it is not known.
    pub user_namespace: u64,
    pub mount_namespace: u64,
    /// Whether set-user-id programs such as fusermount3 get no rights (`no_new_privs`).
    pub no_new_privileges: bool,
    pub seccomp_filters: u32,
    /// Those that the process may use, as bits.
    pub capabilities: u64,
    pub niceness: i32,
    /// The largest values that the process could give its limits (`ulimit -H`); `u64::MAX`: none.
    pub file_bytes_max: u64,
    pub processor_seconds_max: u64,
    pub address_space_bytes_max: u64,
    pub data_bytes_max: u64,
    pub open_files_max: u64,
    pub processes_max: u64,
}
