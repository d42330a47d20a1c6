//! FUSE over io_uring, which the kernel leaves off, is on while this measures.

use std::fs;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// On drop the switch is as it was.
pub struct Switched {
    was: Option<String>,
}

impl Switched {
    /// As root, on a kernel that has it, unless services are kept from it.
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
