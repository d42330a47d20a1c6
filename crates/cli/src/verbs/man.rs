use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use clap::{Args, CommandFactory, ValueHint};
use clap_mangen::Man;
use rustix::io::Errno;
use std::path::PathBuf;

/// Print the manual page, or write those of all verbs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir man | man -l -
  atomdir man --directory /usr/local/share/man/man1")]
pub struct Arguments {
    /// The verb whose page is wanted; by default that of the whole command
    verb: Option<String>,
    /// Write every page into DIR
    // The field needs another name than that of `-C`: clap takes the names for ids.
    #[arg(long = "directory", value_name = "DIR", conflicts_with = "verb")]
    #[arg(value_hint = ValueHint::DirPath)]
    pages: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut command = crate::arguments::Arguments::command();
    if let Some(directory) = &arguments.pages {
        let path = context.directory().join(directory);
        let written = clap_mangen::generate_to(command, &path);
        return match written {
            Ok(()) => Ok(SUCCESS),
            Err(error) => Err(Error::Write {
                path,
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            }),
        };
    }
    command.build();
    let command = match &arguments.verb {
        None => &command,
        Some(verb) => command
            .find_subcommand(verb)
            .ok_or_else(|| Error::usage(format!("there is no verb '{verb}'")))?,
    };
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).map_err(Error::Output)?;
    context.output.write(|painter| painter.exact(&text))?;
    Ok(SUCCESS)
}
