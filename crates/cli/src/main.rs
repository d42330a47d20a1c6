//! The `atomdir` command: a door to the store's service that holds no
//! transaction logic.

mod arguments;
mod attempt;
mod changes;
mod completion;
mod context;
mod duration;
mod ended;
mod enter;
mod error;
mod explain;
mod files;
mod git;
mod inspection;
mod making;
mod merging;
mod output;
mod picking;
mod profiles;
mod refused;
mod synonyms;
mod system;
mod unpacking;
mod verbs;
mod when;
mod which;

use arguments::Arguments;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Parser};
use context::Context;
use error::Error;
use output::Output;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// The exit code that a shell reports for a program ended by SIGPIPE.
const BROKEN_PIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    if let Some(exit_code) = making::answer_make() {
        return ExitCode::from(exit_code);
    }
    let quiet = Output::new(false, true, false);
    if let Some(answer) = profiles::masquerade::answer(quiet) {
        return ExitCode::from(answer.unwrap_or_else(|error| failed(&error, quiet)));
    }
    completion::answer();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(not_understood(&nearest_first(error))),
    };
    let global = &arguments.global;
    let output =
        Output::new(global.json, global.quiet, global.verbose).with_pager(!global.no_pager);
    let result = Context::new(&arguments.global, output)
        .and_then(|context| verbs::run(arguments.verb, &context));
    ExitCode::from(result.unwrap_or_else(|error| failed(&error, output)))
}

/// Help and version were asked for, so they go to standard output. An error in a
/// command line with `--json` is printed as JSON.
fn not_understood(error: &clap::Error) -> u8 {
    let mut own = std::env::args_os().take_while(|word| word != "--");
    let json = error.use_stderr() && own.any(|word| word == "--json");
    if let Some(unknown) = unknown_verb(error)
        && let Some(instead) = instead_of(unknown)
    {
        let error = Error::Usage {
            message: format!("there is no verb '{unknown}'"),
            hint: Some(instead.to_owned()),
        };
        return failed(&error, Output::new(json, false, false));
    }
    if json {
        let message = error.render().to_string();
        let message = message.trim_end();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        return failed(&Error::usage(message), Output::new(true, false, false));
    }
    if error.use_stderr() && std::env::args_os().any(|word| is_odd(&word)) {
        return failed(
            &Error::usage(briefly(error)),
            Output::new(false, false, false),
        );
    }
    let printed = error.print();
    match (error.use_stderr(), printed) {
        (true, _) => explain::ExitCode::Usage.code(),
        (false, Ok(())) => verbs::SUCCESS,
        (false, Err(error)) => match Error::Output(error) {
            error if error.is_broken_pipe() => BROKEN_PIPE,
            error => error.explain().exit_code,
        },
    }
}

/// Clap suggests the verb that is most like the unknown one last.
fn nearest_first(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::Strings(verbs)) = error.get(kind) {
        let verbs = verbs.iter().rev().cloned().collect();
        error.insert(kind, ContextValue::Strings(verbs));
    }
    error
}

fn instead_of(unknown: &str) -> Option<&'static str> {
    let command = Arguments::command();
    let own: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    synonyms::instead_of(unknown, &own)
}

fn unknown_verb(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(verb) => Some(verb),
        _ => None,
    }
}

/// Whether the word could control a terminal.
fn is_odd(word: &OsStr) -> bool {
    output::escaped(word.as_bytes()).as_bytes() != word.as_bytes()
}

/// Says which word of the command line was wrong. Clap's own text has the words as they
/// were typed; the caller escapes this one before it is printed.
fn briefly(error: &clap::Error) -> String {
    let mut text = error.kind().to_string();
    for (kind, value) in error.context() {
        if let (
            ContextKind::InvalidArg | ContextKind::InvalidValue | ContextKind::InvalidSubcommand,
            ContextValue::String(value),
        ) = (kind, value)
        {
            text.push_str(&format!(" '{value}'"));
        }
    }
    text
}

fn failed(error: &Error, output: Output) -> u8 {
    if error.is_broken_pipe() {
        return BROKEN_PIPE;
    }
    let explained = error.explain();
    output.failure(&explained);
    explained.exit_code
}
