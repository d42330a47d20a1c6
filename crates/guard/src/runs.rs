//! Which run of a program makes a call: what was started together, for instance by one line in a
//! shell. That is a process group.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use atomdir_disk::sync;
use atomdir_engine::Run;
use atomdir_fuse::Request;

use crate::processes::Stat;

/// For so long a process counts as what it was. A lookup costs as much as a small call, and most
/// processes make many.
const KNOWN_FOR: Duration = Duration::from_millis(100);

/// The process that was looked up last.
#[derive(Default)]
pub struct Runs(Mutex<Option<Known>>);

struct Known {
    process: u32,
    since: Instant,
    run: Run,
}

impl Runs {
    /// `None`: the kernel makes the call for nobody in particular, or the caller is in a namespace of
    /// processes that does not show here.
    pub fn of(&self, request: &Request) -> Option<Run> {
        let mut last = sync::lock(&self.0);
        let is_it =
            |last: &&Known| last.process == request.process && last.since.elapsed() < KNOWN_FOR;
        if let Some(last) = last.as_ref().filter(is_it) {
            return Some(last.run.clone());
        }
        let (name, group) = process(request.process)?;
        let leader = process(group).map(|(leader, _)| leader);
        let name = match leader {
            Some(leader) if leader != name => [leader, name].join(&b": "[..]),
            _ => name,
        };
        let run = Run {
            group,
            user: request.user,
            name,
        };
        *last = Some(Known {
            process: request.process,
            since: Instant::now(),
            run: run.clone(),
        });
        Some(run)
    }
}

/// Whether no process of the run is left.
pub fn is_over(run: &Run) -> bool {
    let group = rustix::process::Pid::from_raw(run.group.cast_signed());
    let asked = group.map(rustix::process::test_kill_process_group);
    asked == Some(Err(rustix::io::Errno::SRCH))
}

/// A process's name and its group.
fn process(id: u32) -> Option<(Vec<u8>, u32)> {
    let stat = Stat::of(id)?;
    let group = stat.number(5)?;
    Some((stat.name, group))
}
