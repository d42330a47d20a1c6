//! Second processes: this program again, in another role.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, WaitOptions, wait};

use crate::check::{Failure, Outcome, ensure};

/// The `child` of programs that have no second process.
pub fn none(role: &str, _: &[String]) -> Outcome {
    Err(Failure::new(format!("there is no role {role}")))
}

pub fn command(program: &str, role: &str, arguments: &[&str]) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", program, role]).args(arguments);
    Ok(command)
}

pub fn spawn(program: &str, role: &str, arguments: &[&str]) -> Outcome<Child> {
    Ok(command(program, role, arguments)?
        .stdin(Stdio::null())
        .spawn()?)
}

#[track_caller]
pub fn finish(mut child: Child) -> Outcome {
    let status = child.wait()?;
    ensure(
        status.success(),
        format!("the second process ended with {status}"),
    )
}

/// Waits for processes that wait for each other. If one fails, the others would wait for
/// ever, so they are killed.
#[track_caller]
pub fn finish_all(mut children: Vec<Child>) -> Outcome {
    let mut failed = None;
    while failed.is_none()
        && !children.is_empty()
        && let Some((ended, status)) = wait(WaitOptions::empty())?
    {
        children.retain(|child| Pid::from_child(child) != ended);
        failed = (status.exit_status() != Some(0)).then_some(status);
    }
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    match failed {
        Some(status) => Err(Failure::new(format!("a process ended with {status:?}"))),
        None => Ok(()),
    }
}

pub fn call(program: &str, role: &str, arguments: &[&str]) -> Outcome {
    finish(spawn(program, role, arguments)?)
}
