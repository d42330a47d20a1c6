//! Completes the command line in a shell.
//!
//! The script that `atomdir completions` prints calls `atomdir` each time the user presses
//! Tab, with the words typed so far and the variable [`VARIABLE`]. That call only prints
//! what may come next. It starts no service, and reports no error, since the user has not
//! asked for anything yet.

mod shells;

use crate::arguments::{Arguments, Global};
use crate::context::{Connected, Context};
use crate::output::{Output, escaped};
use atomdir::client::{SETTING_KEYS, Settings, TransactionStatus};
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::{CompleteEnv, Shell};
use rustix::fs::{Access, FileType, Mode, OFlags};
use shells::SHELLS;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Names the shell that asks for completions.
const VARIABLE: &str = "ATOMDIR_COMPLETE";

/// Holds the place of the word that is being completed, in the scripts that clap writes.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// More commits than a user looks through.
const COMMITS_MAX: u64 = 50;

/// More programs than a user looks through.
const PROGRAMS_MAX: usize = 1000;

/// If a shell asks for completions, prints them and exits.
pub fn answer() {
    CompleteEnv::with_factory(as_typed)
        .var(VARIABLE)
        .shells(SHELLS)
        .complete();
}

/// The engine completes a verb's arguments in their order, wherever `--` is. So here, after it all
/// of them are completed as those that belong there, and before it those are not.
fn as_typed() -> Command {
    let mut command = Arguments::command();
    // Only now the verbs have their arguments.
    command.build();
    let has_escape = words_before().iter().any(|word| word == "--");
    command.mut_subcommands(|verb| {
        let last = verb.get_arguments().find(|one| one.is_last_set());
        let Some(hint) = last.map(Arg::get_value_hint) else {
            return verb;
        };
        verb.mut_args(|argument| match argument.is_last_set() {
            _ if !argument.is_positional() => argument,
            last if last == has_escape => argument,
            true => argument.add(ArgValueCandidates::new(escape)),
            false if hint == ValueHint::AnyPath => {
                argument.add(ArgValueCompleter::new(PathCompleter::any()))
            }
            false => argument.add(ArgValueCompleter::new(|_: &OsStr| Vec::new())),
        })
    })
}

fn escape() -> Vec<CompletionCandidate> {
    vec![CompletionCandidate::new("--")]
}

pub fn write_script(shell: Shell, script: &mut Vec<u8>) -> io::Result<()> {
    let name = shell.to_string();
    let completer = SHELLS
        .completer(&name)
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    completer.write_registration(VARIABLE, "atomdir", "atomdir", "atomdir", script)
}

/// The user's open transactions.
pub fn transactions() -> ArgValueCandidates {
    ArgValueCandidates::new(transaction_candidates)
}

/// A transaction that comes first, and paths.
pub fn transactions_and_paths(argument: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let mut candidates = match values_before(argument).is_empty() {
            true => starting_with(typed, transaction_candidates()),
            false => Vec::new(),
        };
        candidates.extend(PathCompleter::any().complete(typed));
        candidates
    })
}

/// A transaction, or two commits.
pub fn transactions_or_commits(argument: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let candidates = match &values_before(argument)[..] {
            [] => transaction_candidates(),
            [first] => {
                let open = transaction_candidates();
                match open.iter().any(|one| one.get_value() == first) {
                    true => Vec::new(),
                    false => commit_candidates(),
                }
            }
            _ => Vec::new(),
        };
        starting_with(typed, candidates)
    })
}

/// A program, and then its arguments, of which nothing is known but that they may be paths.
pub fn commands(argument: &'static str) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let is_program = values_before(argument).is_empty();
        let names = match is_program && !typed.as_encoded_bytes().contains(&b'/') {
            true => programs(typed),
            false => BTreeSet::new(),
        };
        match names.is_empty() {
            true => PathCompleter::any().complete(typed),
            false => names.into_iter().map(CompletionCandidate::new).collect(),
        }
    })
}

/// The programs in PATH whose names begin so.
fn programs(typed: &OsStr) -> BTreeSet<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut names = BTreeSet::new();
    for directory in std::env::split_paths(&path) {
        let Ok(listed) = open_directory(&directory).and_then(rustix::fs::Dir::new) else {
            continue;
        };
        for entry in listed.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let begins = name.as_bytes().starts_with(typed.as_encoded_bytes());
            let place = directory.join(name);
            // It also lists `.` and `..`, which can be searched.
            let is_program = |place: &PathBuf| {
                let is_file = rustix::fs::stat(place).is_ok_and(|stat| {
                    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                });
                is_file && rustix::fs::access(place, Access::EXEC_OK).is_ok()
            };
            if begins && is_program(&place) {
                names.insert(name.to_owned());
            }
            if names.len() == PROGRAMS_MAX {
                return names;
            }
        }
    }
    names
}

fn open_directory(path: &PathBuf) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// The keys of settings.
pub fn setting_keys() -> ArgValueCandidates {
    ArgValueCandidates::new(|| SETTING_KEYS.map(CompletionCandidate::new).into())
}

/// The words that the setting named by the argument `key` can be set to.
pub fn setting_words(key: &'static str) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let keys = values_before(key);
        let key = keys.first().and_then(|key| key.to_str());
        let words = key.map(Settings::words).unwrap_or_default();
        words.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The savepoints of the user's open transactions.
pub fn savepoints() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let of_one = |status: TransactionStatus| {
            let help = format!("transaction {}", status.transaction);
            let candidate = move |name| {
                let name = OsString::from_vec(name);
                CompletionCandidate::new(name).help(Some(help.clone().into()))
            };
            status.savepoints.into_iter().map(candidate)
        };
        open_transactions().into_iter().flat_map(of_one).collect()
    })
}

fn transaction_candidates() -> Vec<CompletionCandidate> {
    let candidate = |status: TransactionStatus| {
        let label = escaped(&status.label);
        CompletionCandidate::new(status.transaction.to_string()).help(Some(label.into()))
    };
    open_transactions().into_iter().map(candidate).collect()
}

fn open_transactions() -> Vec<TransactionStatus> {
    let found = connect().and_then(|mut connected| connected.connection.transactions().ok());
    found.unwrap_or_default()
}

/// The newest commits.
pub fn commits() -> ArgValueCandidates {
    ArgValueCandidates::new(commit_candidates)
}

/// Commits, and words that stand for some.
pub fn commits_and_words() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let words = [
            ("last", "the newest commit"),
            ("yesterday", "all commits since yesterday began"),
        ];
        let words = words
            .map(|(word, help)| CompletionCandidate::new(word).help(Some(help.to_owned().into())));
        let commits = commit_candidates();
        commits.into_iter().chain(words).collect()
    })
}

fn commit_candidates() -> Vec<CompletionCandidate> {
    let commits =
        connect().and_then(|mut connected| connected.connection.log(None, COMMITS_MAX).ok());
    let candidate = |commit: atomdir::CommitSummary| {
        let label = escaped(&commit.label);
        CompletionCandidate::new(commit.sequence.to_string()).help(Some(label.into()))
    };
    commits.into_iter().flatten().map(candidate).collect()
}

fn starting_with(
    typed: &OsStr,
    mut candidates: Vec<CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let typed = typed.as_encoded_bytes();
    candidates.retain(|one| one.get_value().as_encoded_bytes().starts_with(typed));
    candidates
}

fn connect() -> Option<Connected> {
    let global = Global {
        directories: directory_typed().into_iter().collect(),
        ..Global::default()
    };
    let context = Context::new(&global, Output::new(false, true, false)).ok()?;
    context.without_news().connect_if_running().ok()?
}

/// The argument of `-C`, if the user has typed one.
fn directory_typed() -> Option<PathBuf> {
    let mut words = words_before().into_iter();
    words.find(|word| word == "-C")?;
    words.next().map(PathBuf::from)
}

/// What the argument has been given already.
fn values_before(argument: &str) -> Vec<OsString> {
    let command = Arguments::command().ignore_errors(true);
    let matches = command.try_get_matches_from(words_before());
    let of_verb = matches
        .ok()
        .and_then(|mut matches| matches.remove_subcommand());
    let values = of_verb.and_then(|(_, verb)| {
        let values = verb.try_get_raw(argument).ok()??;
        Some(values.map(OsStr::to_owned).collect())
    });
    values.unwrap_or_default()
}

/// The words of the command line before the one that is being completed.
fn words_before() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(1)
        .collect();
    let index = std::env::var(INDEX).ok();
    // fish passes no index: the last word is completed.
    let index = index.and_then(|index| index.parse().ok());
    words.truncate(index.unwrap_or(words.len().saturating_sub(1)));
    words
}
