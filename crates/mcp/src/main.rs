//! `atomdir-mcp` serves the Model Context Protocol over standard input and output. `atomdir mcp`
//! starts it in the directory of a store.
//!
//! It is a door to the command, not to the library: each tool is one verb of `atomdir --json`. So
//! tools do what the verbs do, and their errors have the same hints.
//!
//! Modules
//! - `server`: answers the client's requests
//! - `tools`: the tools, their parameters, and the command line that each stands for
//! - `parameters`: what a tool takes, as a schema, and checking what a client sent
//! - `command`: running `atomdir`, and what it printed
//! - `read`: reading files and directories of a view

mod command;
mod parameters;
mod read;
mod server;
mod tools;

use command::Program;
use rmcp::ServiceExt;
use server::Server;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// What the command uses for "wrong usage".
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words
        .next()
        .filter(|word| word.as_encoded_bytes().starts_with(b"/"))
    else {
        complain("`atomdir mcp` starts this program; start that instead");
        return ExitCode::from(USAGE);
    };
    match serve(Program::new(program, words.collect())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn complain(message: &str) {
    // If standard error is closed, nobody reads it.
    let _ = writeln!(std::io::stderr(), "error: {message}");
}

fn serve(program: Program) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let running = Server::new(program).serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        Ok(())
    });
    // A read of standard input that nobody waits for any more must not keep this process.
    runtime.shutdown_background();
    served
}
