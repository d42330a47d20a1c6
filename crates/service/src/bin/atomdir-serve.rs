//! Runs the service for this crate's tests, which cannot reach the `atomdir`
//! command: `atomdir-serve ROOT IDLE_MILLISECONDS [--detach]`.

use atomdir_service::{ServiceOptions, run};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let idle = arguments
        .get(1)
        .and_then(|text| text.to_str()?.parse().ok());
    let (Some(root), Some(idle)) = (arguments.first(), idle) else {
        return ExitCode::FAILURE;
    };
    let options = ServiceOptions {
        detach: arguments
            .get(2)
            .is_some_and(|argument| argument == "--detach"),
        idle: Some(Duration::from_millis(idle)),
    };
    match run(root.as_ref(), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
