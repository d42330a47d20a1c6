//! Small programs that use the file system in ways ordinary ones do, each of
//! them doing one thing thoroughly. None knows of Atomdir: a test runs one in
//! a plain directory and in a view, and the output and the trees must agree.
//!
//!     posix_programs list
//!     posix_programs prepare NAME     makes what the program starts from
//!     posix_programs run NAME         runs it in the current directory
//!     posix_programs child NAME ROLE [ARGUMENT...]    a second process of it

mod appending;
mod attributes;
mod check;
mod deep_directories;
mod device_nodes;
mod directory_reading;
mod executing;
mod fifos;
mod file_io;
mod hard_links;
mod large_files;
mod link_limit;
mod locks;
mod map;
mod names;
mod notifications;
mod open_files;
mod process;
mod random_file_io;
mod random_operations;
mod renames;
mod shared_mappings;
mod sockets;
mod sparse_files;
mod symbolic_links;
mod temporary_files;
mod threads;
mod working_directory;

use std::process::ExitCode;

use check::{Failure, Outcome};

/// One program: what it starts from, what it does there, and what its second
/// process does when it has one.
struct Program {
    name: &'static str,
    prepare: fn() -> Outcome,
    run: fn() -> Outcome,
    child: fn(&str, &[String]) -> Outcome,
}

const PROGRAMS: &[Program] = &[
    appending::PROGRAM,
    attributes::PROGRAM,
    deep_directories::PROGRAM,
    device_nodes::PROGRAM,
    directory_reading::PROGRAM,
    executing::PROGRAM,
    fifos::PROGRAM,
    file_io::PROGRAM,
    hard_links::PROGRAM,
    large_files::PROGRAM,
    link_limit::PROGRAM,
    locks::PROGRAM,
    names::PROGRAM,
    notifications::PROGRAM,
    open_files::PROGRAM,
    random_file_io::PROGRAM,
    renames::PROGRAM,
    shared_mappings::PROGRAM,
    sockets::PROGRAM,
    sparse_files::PROGRAM,
    symbolic_links::PROGRAM,
    temporary_files::PROGRAM,
    threads::PROGRAM,
    working_directory::PROGRAM,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["list"] => {
            PROGRAMS
                .iter()
                .for_each(|program| println!("{}", program.name));
            Ok(())
        }
        ["prepare", name] => find(name).and_then(|program| (program.prepare)()),
        ["run", name] => find(name).and_then(|program| (program.run)()),
        ["child", name, role, ..] => {
            find(name).and_then(|program| (program.child)(role, &arguments[3..]))
        }
        _ => Err(Failure::new(format!("cannot understand {arguments:?}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("posix_programs {}: {failure}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn find(name: &str) -> Outcome<&'static Program> {
    PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .ok_or_else(|| Failure::new(format!("no program is named {name}")))
}
