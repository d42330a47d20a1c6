//! Switches FUSE over io_uring on during a run. The kernel has it off by default.

use std::fs;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Dropping it sets the kernel's switch back to its old value.
pub struct Switched {
    was: Option<String>,
}

impl Switched {
    /// Switches it on if this is root, the kernel has the switch, and ATOMDIR_FUSE allows it.
    pub fn on() -> Switched {
        let was = fs::read_to_string(SWITCH).ok().filter(|_| !is_refused());
        let switched = was.filter(|_| fs::write(SWITCH, "Y").is_ok());
        Switched { was: switched }
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        if let Some(was) = &self.was
            && let Err(error) = fs::write(SWITCH, was)
        {
            eprintln!("cannot write {SWITCH}: {error}");
        }
    }
}

/// How requests for views reach the services that are measured.
pub fn way_of_requests() -> &'static str {
    let is_on = fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y");
    if is_on && !is_refused() {
        "io_uring"
    } else {
        "/dev/fuse"
    }
}

fn is_refused() -> bool {
    std::env::var_os("ATOMDIR_FUSE").is_some_and(|way| way == "classic")
}
