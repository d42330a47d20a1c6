//! Programs that are written to the directory and run from it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::check::{Outcome, ensure, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "executing";

const GREETING: &str = "run from here\n";

fn prepare() -> Outcome {
    fs::create_dir("bin")?;
    copy_of_this("bin/old")?;
    fs::write(
        "bin/script",
        "#!/bin/sh\nexec ./bin/old child executing greet\n",
    )?;
    fs::set_permissions("bin/script", Permissions::from_mode(0o755))?;
    Ok(())
}

fn run() -> Outcome {
    copied_and_run()?;
    scripts()?;
    busy_while_it_runs()?;
    no_right_to_run()?;
    by_descriptor()?;
    as_another_user()?;
    loaded_by_another()
}

fn copy_of_this(path: impl AsRef<Path>) -> Outcome {
    fs::copy(std::env::current_exe()?, &path)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

fn greeting_of(path: impl AsRef<Path>) -> Outcome<String> {
    let output = Command::new(path.as_ref())
        .args(["child", NAME, "greet"])
        .output()?;
    ensure(
        output.status.success(),
        String::from_utf8_lossy(&output.stderr),
    )?;
    Ok(String::from_utf8(output.stdout)?)
}

fn copied_and_run() -> Outcome {
    copy_of_this("bin/new")?;
    same("new", greeting_of("./bin/new")?.as_str(), GREETING)?;
    same("old", greeting_of("./bin/old")?.as_str(), GREETING)?;
    fs::rename("bin/new", "bin/renamed")?;
    same("renamed", greeting_of("./bin/renamed")?.as_str(), GREETING)?;
    let place = std::env::current_dir()?.join("bin/renamed");
    same("by its whole path", greeting_of(place)?.as_str(), GREETING)
}

fn scripts() -> Outcome {
    same("script", greeting_of("./bin/script")?.as_str(), GREETING)?;
    fs::write(
        "bin/interpreted",
        "#!./bin/renamed child executing interpret",
    )?;
    fs::set_permissions("bin/interpreted", Permissions::from_mode(0o700))?;
    // The kernel passes the rest of the line as one argument, which this program does not
    // understand. Its complaint shows that it was run.
    let output = Command::new("./bin/interpreted").output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure(said.contains("child executing interpret"), said)
}

/// A running program cannot be written, and can be replaced.
fn busy_while_it_runs() -> Outcome {
    let mut running = Command::new("./bin/renamed")
        .args(["child", NAME, "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut ready = [0; 1];
    running
        .stdout
        .as_mut()
        .map_or(Ok(()), |output| output.read_exact(&mut ready))?;
    let opened = OpenOptions::new().write(true).open("bin/renamed").map(drop);
    same(
        "written while it runs",
        opened.map_err(|e| e.kind()),
        Err(ErrorKind::ExecutableFileBusy),
    )?;
    copy_of_this("bin/replacement")?;
    fs::rename("bin/replacement", "bin/renamed")?;
    same("replaced", greeting_of("./bin/renamed")?.as_str(), GREETING)?;
    drop(running.stdin.take());
    process::finish(running)?;
    OpenOptions::new()
        .append(true)
        .open("bin/renamed")?
        .write_all(b"trailing bytes")?;
    same(
        "after it ended",
        greeting_of("./bin/renamed")?.as_str(),
        GREETING,
    )
}

fn no_right_to_run() -> Outcome {
    fs::set_permissions("bin/old", Permissions::from_mode(0o644))?;
    let started = Command::new("./bin/old").status().map(drop);
    same(
        "without the right",
        started.map_err(|e| e.kind()),
        Err(ErrorKind::PermissionDenied),
    )?;
    fs::set_permissions("bin/old", Permissions::from_mode(0o755))?;
    same(
        "with it again",
        greeting_of("./bin/old")?.as_str(),
        GREETING,
    )
}

fn by_descriptor() -> Outcome {
    let program = File::open("bin/old")?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), program.as_raw_fd());
    same("by descriptor", greeting_of(path)?.as_str(), GREETING)
}

fn as_another_user() -> Outcome {
    fs::copy("/usr/bin/id", "bin/id")?;
    chown("bin/id", Some(65534), Some(65534))?;
    fs::set_permissions("bin/id", Permissions::from_mode(0o6755))?;
    let output = Command::new("./bin/id").arg("-u").output()?;
    println!(
        "set-user-id program runs as {}",
        String::from_utf8(output.stdout)?.trim()
    );
    Ok(())
}

/// A copy of a shared library is mapped as code like any program.
fn loaded_by_another() -> Outcome {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let library = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6"));
    let Some(library) = library else {
        println!("no shared C library");
        return Ok(());
    };
    fs::create_dir("lib")?;
    fs::copy(library, "lib/libc.so.6")?;
    let output = Command::new("/usr/bin/cat")
        .arg("/proc/self/maps")
        .env("LD_LIBRARY_PATH", std::env::current_dir()?.join("lib"))
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure(
        said.contains(&*std::env::current_dir()?.join("lib").to_string_lossy()),
        said,
    )
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    match role {
        "greet" => {
            print!("{GREETING}");
            Ok(())
        }
        "wait" => {
            std::io::stdout().write_all(b"r")?;
            std::io::stdout().flush()?;
            std::io::stdin().read_to_end(&mut Vec::new())?;
            Ok(())
        }
        _ => process::none(role, arguments),
    }
}
