use super::ExitCode;
use crate::context::{Context, own_program};
use crate::error::Error;
use atomdir::Trust;
use clap::Args;
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::process::Command;

const SERVER: &str = "atomdir-mcp";

/// Serve an agent's tools over standard input and output: the Model Context Protocol
///
/// An agent's program starts it. Its tools are verbs of this command: begin, run, diff, commit,
/// undo and others. The program atomdir-mcp, which must be beside this one, does the work.
/// docs/agents.md says how to set agents up.
#[derive(Debug, Args)]
#[command(after_help = "Example, in an agent's settings:
  {\"mcpServers\": {\"atomdir\": {\"command\": \"atomdir\", \"args\": [\"mcp\", \"-C\", \"/srv/site\"]}}}")]
pub struct Arguments {}

pub fn run(context: &Context) -> Result<ExitCode, Error> {
    // An agent's program shows better that a server did not start than that each tool fails.
    drop(context.connect()?);
    let program = own_program();
    // A link to this program need not have the server beside it.
    let real = rustix::fs::readlink("/proc/self/exe", Vec::new());
    let real = real.ok().and_then(|path| path.into_string().ok());
    let server = real
        .map_or_else(|| program.clone(), Into::into)
        .with_file_name(SERVER);
    let mut command = Command::new(&server);
    command.arg(&program);
    if context.trust() == Trust::Everyone {
        command.arg("--trust");
    }
    let error = command.exec();
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    Err(Error::NoServer { server, errno })
}
