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
    Timestamp::of_fields(time.tv_sec, time.tv_nsec)
}
