//! Signals by the names that people know.

/// Those that can end a process.
const NAMES: [(libc::c_int, &str); 23] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGSYS, "SIGSYS"),
];

/// Returns `SIGTERM` or `SIGRTMIN+1`, for example, or `signal 32` for a signal without a name.
pub fn signal_name(signal: libc::c_int) -> String {
    let first_of_real_time = libc::SIGRTMIN();
    match NAMES.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => (*name).to_owned(),
        None if (first_of_real_time..=libc::SIGRTMAX()).contains(&signal) => {
            format!("SIGRTMIN+{}", signal - first_of_real_time)
        }
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_can_end_a_process_has_a_name() {
        let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        for signal in 1..=31 {
            let has_name = signal_name(signal) != format!("signal {signal}");
            assert_ne!(
                has_name,
                harmless.contains(&signal) || stopping.contains(&signal)
            );
        }
        assert_eq!(signal_name(libc::SIGRTMIN() + 1), "SIGRTMIN+1");
    }
}
