//! The limit for the end of the service.

use crate::process::lifecycle::answer_stopped;
use crate::service::Service;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

/// The limit for the whole end. After it the process exits as if by SIGKILL, and the
/// next service recovers.
const END_TIME_MAX: Duration = Duration::from_secs(120);

/// Exits the process if its end takes too long, unless dropped before. A thread may
/// wait in the kernel for something that other programs hold, and only the process's
/// exit ends such a wait.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its end is the news")] Sender<()>);

impl Watchdog {
    /// Returns `None` if the thread could not be started; then the end has no limit.
    pub fn start(service: &Arc<Service>) -> Option<Watchdog> {
        let (alive, news) = std::sync::mpsc::channel();
        let service = Arc::downgrade(service);
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        let watch = move || {
            if news.recv_timeout(END_TIME_MAX) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            tracing::error!("the service could not end in order; the next one recovers");
            if let Some(service) = service.upgrade() {
                answer_stopped(service.stop.take_waiting(), 0);
            }
            // SAFETY: it ends the process without running anything of its own.
            unsafe { libc::_exit(libc::EXIT_FAILURE) }
        };
        thread.spawn(watch).ok().map(|_| Watchdog(alive))
    }
}
