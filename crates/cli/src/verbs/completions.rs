use super::{ExitCode, SUCCESS};
use crate::completion;
use crate::context::Context;
use crate::error::Error;
use clap::Args;
use clap_complete::Shell;

/// Print a shell's completion script
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir completions bash > /usr/share/bash-completion/completions/atomdir")]
pub struct Arguments {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut script = Vec::new();
    completion::write_script(arguments.shell, &mut script).map_err(Error::Output)?;
    context.output.write(|painter| painter.exact(&script))?;
    Ok(SUCCESS)
}
