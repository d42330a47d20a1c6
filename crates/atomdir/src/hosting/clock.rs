//! The system's real-time clock, for the engine.

use atomdir_disk::Timestamp;
use atomdir_engine::Clock;
use rustix::time::{ClockId, clock_gettime};

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }
}

pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Realtime);
    Timestamp {
        seconds: time.tv_sec,
        nanoseconds: u32::try_from(time.tv_nsec).unwrap_or(0),
    }
}
