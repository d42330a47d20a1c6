//! A SQLite database and its logs are one: contents of one without the other's are damage. So the
//! database, its write-ahead log and its journal are undone, restored, committed as a part and
//! dropped together, and nothing of them is undone if one has changed since. The shared-memory index
//! beside a write-ahead log changes with every reader and is rebuilt from the log; it goes with the
//! others and is no obstacle.

use atomdir_disk::Name;

const LOGS: [&[u8]; 2] = [b"-wal", b"-journal"];
const INDEX: &[u8] = b"-shm";

/// The name or path of the database to which a file of this name would belong.
pub(crate) fn database(name: &[u8]) -> &[u8] {
    let mut endings = LOGS.into_iter().chain([INDEX]);
    let found = endings.find_map(|ending| name.strip_suffix(ending));
    found
        .filter(|database| !database.is_empty())
        .unwrap_or(name)
}

/// All names or paths that one database may have, including this one. A file whose name is so long
/// that no ending fits has no others.
pub(crate) fn family(name: &[u8]) -> Vec<Vec<u8>> {
    let database = database(name);
    let mut family = vec![database.to_vec()];
    for ending in LOGS.into_iter().chain([INDEX]) {
        let member = [database, ending].concat();
        let last = member.rsplit(|byte| *byte == b'/').next();
        if last.is_some_and(|last| last.len() <= Name::LENGTH_MAX) {
            family.push(member);
        }
    }
    family
}

/// The names of the files whose locks also protect this one: its users lock the database and the
/// index, and never a log.
pub(crate) fn locked_for(name: &Name) -> Vec<Name> {
    let bytes = name.as_bytes();
    if !LOGS.iter().any(|ending| bytes.ends_with(ending)) {
        return Vec::new();
    }
    let database = database(bytes);
    let names = [database.to_vec(), [database, INDEX].concat()];
    let names = names.iter().filter(|other| other.as_slice() != bytes);
    names.filter_map(|name| Name::new(name).ok()).collect()
}

/// The names whose changes forbid to undo changes of this one.
pub(crate) fn guarding(name: &[u8]) -> Vec<Vec<u8>> {
    let mut family = family(name);
    family.retain(|member| member != name && !member.ends_with(INDEX));
    family
}
