//! Polls until a condition holds.

use std::time::Duration;

/// Each pause is a microsecond longer than the one before. Together they last five minutes: only a
/// hang takes longer.
const LOOKS_MAX: u64 = 25_000;

/// Polls until `holds` returns true. If it never does, the panic names what was `awaited`.
#[track_caller]
pub fn wait_until(awaited: &str, mut holds: impl FnMut() -> bool) {
    wait_for(awaited, || holds().then_some(()));
}

/// Polls until `look` returns something.
#[track_caller]
pub fn wait_for<T>(awaited: &str, look: impl FnMut() -> Option<T>) -> T {
    let Some(found) = look_long(look) else {
        panic!("this never came: {awaited}");
    };
    found
}

/// Like [`wait_for`], but does not panic: for guards that clean up after a panic, and for tests that
/// say more about what they found.
pub fn look_long<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..LOOKS_MAX).find_map(|number| {
        let found = look();
        if found.is_none() {
            std::thread::sleep(Duration::from_micros(number));
        }
        found
    })
}

/// For scripts: `wait_until COMMAND` runs the command until it succeeds. If it never does, the
/// script kills its last job and fails.
pub const WAIT_UNTIL: &str = "
    wait_until() {
        for look in $(seq 30000); do \"$@\" && return; sleep 0.01; done
        echo \"this never came: $*\" >&2; kill -KILL $!; exit 1
    }
";
