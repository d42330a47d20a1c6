use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use clap::{Arg, Args, Command, CommandFactory, ValueHint};
use clap_mangen::Man;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

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
    let mut command = crate::arguments::Arguments::command().disable_help_subcommand(true);
    command.build();
    let command = with_synopsis(command);
    if let Some(directory) = &arguments.pages {
        let path = context.directory().join(directory);
        return match write_pages(&command, &path) {
            Ok(()) => Ok(SUCCESS),
            Err(error) => Err(Error::Write {
                path,
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            }),
        };
    }
    let command = match &arguments.verb {
        None => &command,
        Some(verb) => command
            .find_subcommand(verb)
            .ok_or_else(|| Error::usage(format!("there is no verb '{verb}'")))?,
    };
    let mut text = Vec::new();
    page(command).render(&mut text).map_err(Error::Output)?;
    context.output.write(|painter| painter.exact(&text))?;
    Ok(SUCCESS)
}

/// Its footer has the program's version: clap's verbs have none.
fn page(command: &Command) -> Man {
    let source = concat!("atomdir ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source)
}

/// Writes the page of a command, and those of its verbs.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let verbs = command.get_subcommands();
    for verb in verbs.filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, directory)?;
    }
    page(command).generate_to(directory).map(drop)
}

/// Adds a synopsis to a command and its verbs: clap_mangen's own leaves out the options' values.
fn with_synopsis(command: Command) -> Command {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .partition(|argument| argument.is_positional());
    let mut words = vec![name.to_owned()];
    words.extend(options.into_iter().map(option));
    words.extend(positional.into_iter().map(operand));
    if command.has_subcommands() {
        words.push("VERB".to_owned());
    }
    command
        .override_usage(words.join(" "))
        .mut_subcommands(with_synopsis)
}

/// For example `[-m|--message TEXT]`.
fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let mut text: String = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if argument.get_action().takes_values() {
        let is_optional = argument
            .get_num_args()
            .is_some_and(|range| range.min_values() == 0);
        match (is_optional, values(argument)) {
            (true, values) => text.push_str(&format!("[={values}]")),
            (false, values) => text.push_str(&format!(" {values}")),
        }
    }
    match argument.is_required_set() {
        true => text,
        false => format!("[{text}]"),
    }
}

/// For example `[-- PATH...]`.
fn operand(argument: &Arg) -> String {
    let is_many = argument
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    let before = if argument.is_last_set() { "-- " } else { "" };
    let after = if is_many { "..." } else { "" };
    let text = format!("{before}{}{after}", values(argument));
    match argument.is_required_set() {
        true => text,
        false => format!("[{text}]"),
    }
}

fn values(argument: &Arg) -> String {
    match argument.get_value_names() {
        Some(names) => names.join(" "),
        None => argument.get_id().as_str().to_uppercase(),
    }
}
