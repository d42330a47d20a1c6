//! The tools, their parameters, and the command line that each stands for.

use crate::parameters::{Given, Kind, Parameter, optional, required, schema};
use rmcp::model::{Tool, ToolAnnotations};
use std::ffi::OsString;
use std::time::Duration;

/// How long a command may take if the client says nothing.
const TIMEOUT_SECONDS: u64 = 600;

/// What is to be done for a client.
pub enum Call {
    /// A verb that prints one JSON object.
    Verb(Vec<OsString>),
    /// A command in a transaction.
    Command(Command),
    /// A file or directory of a transaction's view.
    Read {
        transaction: u64,
        path: String,
        offset: u64,
    },
}

pub struct Command {
    pub words: Vec<OsString>,
    /// Whether it is a transaction of its own, so that its outcome is to be reported.
    pub is_transaction: bool,
    /// What it runs.
    pub script: String,
    pub input: Vec<u8>,
    pub timeout: Duration,
}

pub struct Definition {
    name: &'static str,
    description: &'static str,
    pub parameters: &'static [Parameter],
    effect: Effect,
    pub call: fn(&Given) -> Call,
}

/// What clients show to users before they allow a tool.
#[derive(PartialEq, Eq)]
enum Effect {
    Looks,
    Changes,
    /// Takes away changes that nothing brings back.
    Drops,
}

const TRANSACTION: Parameter = required(
    "transaction",
    Kind::Number,
    "the transaction's id, from begin or status",
);
const PATHS: Parameter = optional(
    "paths",
    Kind::Texts,
    "only what is at or below these paths, relative to the server's directory",
);

pub const TOOLS: &[Definition] = &[
    Definition {
        name: "begin",
        description: "Begin a transaction. Returns its id and its view: a directory that shows the \
            store as of now plus the transaction's own changes. Change files there, or with run. \
            Nobody else sees a change before commit; abort drops all of them. With within it begins \
            within another transaction: its commit adds its changes to that one.",
        parameters: &[
            optional(
                "within",
                Kind::Number,
                "the id of an open transaction, whose state it begins with",
            ),
            optional("label", Kind::Text, "what the log calls it"),
            optional(
                "max_age",
                Kind::Text,
                "abort it by itself after this time: 30m, 2h",
            ),
        ],
        effect: Effect::Changes,
        call: |given| {
            let mut words = words(["begin"]);
            let within = given.number("within").map(|id| id.to_string());
            words.extend(option("--in", within.as_deref()));
            words.extend(option("--message", given.text("label")));
            words.extend(option("--max-age", given.text("max_age")));
            Call::Verb(words)
        },
    },
    Definition {
        name: "fork",
        description: "Begin a second transaction from the present state of an open one, to try \
            another way. It has a view of its own, and from then on the two are independent: commit \
            the better one and abort the other. Where both have changed the same in different ways, \
            the first to commit wins.",
        parameters: &[
            TRANSACTION,
            optional("label", Kind::Text, "what status calls it"),
        ],
        effect: Effect::Changes,
        call: |given| {
            let mut words = words(["fork"]);
            words.extend(option("--message", given.text("label")));
            words.push(id(given).into());
            Call::Verb(words)
        },
    },
    Definition {
        name: "run",
        description: "Run a shell command. With a transaction: in its view, and the transaction \
            stays open. Without: as a transaction of its own, which commits if the command exits \
            with 0 and otherwise changes nothing in the store. In both, the store's own path shows \
            the view. Long output is cut in the middle.",
        parameters: &[
            required("command", Kind::Text, "for /bin/sh -c"),
            optional("transaction", Kind::Number, "an open transaction"),
            optional("input", Kind::Text, "the command's standard input"),
            optional(
                "label",
                Kind::Text,
                "without a transaction: what the log calls it",
            )
            .not_with("transaction"),
            optional(
                "retry",
                Kind::Number,
                "without a transaction: how often to run it again after a conflict",
            )
            .not_with("transaction"),
            optional(
                "timeout_seconds",
                Kind::Number,
                "end the command after this time; by default 600",
            ),
        ],
        effect: Effect::Changes,
        call: run,
    },
    Definition {
        name: "read",
        description: "Read a file, or list a directory, as a transaction sees it.",
        parameters: &[
            TRANSACTION,
            required(
                "path",
                Kind::Text,
                "relative to the store's root; '.' is the root",
            ),
            optional("offset", Kind::Number, "where to start in a file, in bytes"),
        ],
        effect: Effect::Looks,
        call: |given| Call::Read {
            transaction: given.number("transaction").unwrap_or_default(),
            path: given.text("path").unwrap_or_default().to_owned(),
            offset: given.number("offset").unwrap_or_default(),
        },
    },
    Definition {
        name: "status",
        description: "Show a transaction and the list of its changes, or all open transactions.",
        parameters: &[optional("transaction", Kind::Number, "an open transaction")],
        effect: Effect::Looks,
        call: |given| match given.number("transaction") {
            Some(transaction) => Call::Verb(words(["status", &transaction.to_string()])),
            None => Call::Verb(words(["list"])),
        },
    },
    Definition {
        name: "diff",
        description: "Show what a transaction has changed, as unified diffs.",
        parameters: &[
            TRANSACTION,
            optional("stat", Kind::Flag, "only how many lines of each file"),
            PATHS,
        ],
        effect: Effect::Looks,
        call: |given| {
            let mut words = words(["diff", &id(given)]);
            words.extend(given.flag("stat").then(|| "--stat".into()));
            with_paths(words, given)
        },
    },
    Definition {
        name: "savepoint",
        description: "Name the present state of a transaction, for rollback. A commit ends all \
            savepoints, and so does conflicts.",
        parameters: &[
            TRANSACTION,
            required("name", Kind::Text, "a name of your choice"),
        ],
        effect: Effect::Changes,
        call: |given| named("savepoint", given),
    },
    Definition {
        name: "rollback",
        description: "Take a transaction back to a savepoint. What it has changed since is dropped.",
        parameters: &[
            TRANSACTION,
            required("name", Kind::Text, "the savepoint's name"),
        ],
        effect: Effect::Drops,
        call: |given| named("rollback", given),
    },
    Definition {
        name: "commit",
        description: "Make a transaction's changes take effect, all at once, and end it. With paths \
            only those take effect, and the transaction stays open with the rest. If others have \
            changed the same things it is refused with a list of conflicts, nothing changes, and \
            the transaction stays open: look at conflicts, then take a side in each, or abort.",
        parameters: &[
            TRANSACTION,
            PATHS,
            optional(
                "take_mine",
                Kind::Text,
                "replace the others' change in these conflicts: '1,3', or 'all' for all the rest",
            ),
            optional(
                "take_theirs",
                Kind::Text,
                "give up the transaction's change in these conflicts: '1,3' or 'all'",
            ),
            optional(
                "merge",
                Kind::Text,
                "merge the texts of these conflicts line by line: '1,3' or 'all'",
            ),
            optional(
                "confirm",
                Kind::Text,
                "take the commit back after this time, such as '10m', unless confirm is called",
            ),
        ],
        effect: Effect::Changes,
        call: |given| {
            let mut words = words(["commit", &id(given)]);
            for (name, parameter) in [
                ("--take-mine", "take_mine"),
                ("--take-theirs", "take_theirs"),
                ("--merge", "merge"),
                ("--confirm", "confirm"),
            ] {
                words.extend(option(name, given.text(parameter)));
            }
            with_paths(words, given)
        },
    },
    Definition {
        name: "confirm",
        description: "Keep a commit that would take itself back: see the parameter confirm of commit.",
        parameters: &[required("commit", Kind::Number, "its number")],
        effect: Effect::Changes,
        call: |given| {
            let commit = given.number("commit").unwrap_or_default().to_string();
            Call::Verb(words(["confirm", &commit]))
        },
    },
    Definition {
        name: "conflicts",
        description: "List and number what keeps a transaction from being committed, with what each \
            side has changed in texts (`mine`, `theirs`). Drops its savepoints.",
        parameters: &[TRANSACTION],
        effect: Effect::Looks,
        call: |given| Call::Verb(words(["conflicts", &id(given), "--patch"])),
    },
    Definition {
        name: "refresh",
        description: "Bring an open transaction up to date with what others have committed. It \
            keeps its own changes. Drops its savepoints.",
        parameters: &[TRANSACTION],
        effect: Effect::Changes,
        call: |given| Call::Verb(words(["refresh", &id(given)])),
    },
    Definition {
        name: "abort",
        description: "Drop a transaction's changes and end it. With paths only those changes are \
            dropped, and the transaction stays open with the rest.",
        parameters: &[TRANSACTION, PATHS],
        effect: Effect::Drops,
        call: |given| with_paths(words(["abort", &id(given)]), given),
    },
    Definition {
        name: "log",
        description: "List commits, newest first.",
        parameters: &[
            optional("limit", Kind::Number, "at most so many; by default 20"),
            PATHS,
        ],
        effect: Effect::Looks,
        call: |given| {
            let limit = given.number("limit").unwrap_or(20).to_string();
            let mut words = words(["log"]);
            words.extend(option("--limit", Some(&limit)));
            with_paths(words, given)
        },
    },
    Definition {
        name: "show",
        description: "Show what a commit changed, as unified diffs.",
        parameters: &[required("commit", Kind::Number, "its number, from log")],
        effect: Effect::Looks,
        call: |given| {
            let commit = given.number("commit").unwrap_or_default().to_string();
            Call::Verb(words(["show", &commit, "--patch"]))
        },
    },
    Definition {
        name: "undo",
        description: "Take back what commits changed, as a commit of its own, which can be undone \
            as well. If any of that was changed again later, nothing is undone.",
        parameters: &[
            required("commits", Kind::Numbers, "their numbers, from log"),
            PATHS,
            optional("dry_run", Kind::Flag, "only list what would change"),
            optional(
                "take_mine",
                Kind::Flag,
                "where something was changed again later, overwrite that",
            ),
            optional(
                "take_theirs",
                Kind::Flag,
                "where something was changed again later, leave that and take back the rest",
            ),
        ],
        effect: Effect::Changes,
        call: |given| {
            let mut words = words(["undo"]);
            for (name, parameter) in [
                ("--take-mine", "take_mine"),
                ("--take-theirs", "take_theirs"),
            ] {
                words.extend(given.flag(parameter).then(|| name.into()));
            }
            words.extend(given.flag("dry_run").then(|| "--dry-run".into()));
            let commits = given.numbers("commits").into_iter();
            words.extend(commits.map(|commit| OsString::from(commit.to_string())));
            with_paths(words, given)
        },
    },
    Definition {
        name: "restore",
        description: "Bring files back as they were after a commit, no matter who has changed them \
            since. It is a commit of its own.",
        parameters: &[
            required(
                "commit",
                Kind::Text,
                "a commit's number (0: before the first), or a time: '10m' ago, a date and time",
            ),
            required(
                "paths",
                Kind::Texts,
                "relative to the server's directory; '.' for all",
            ),
            optional("dry_run", Kind::Flag, "only list what would change"),
        ],
        effect: Effect::Changes,
        call: |given| {
            let mut words = words(["restore"]);
            words.extend(given.flag("dry_run").then(|| "--dry-run".into()));
            // No commit and no time starts with a dash.
            let commit = given.text("commit").unwrap_or_default();
            words.push(commit.trim_start_matches('-').into());
            with_paths(words, given)
        },
    },
];

impl Definition {
    pub fn find(name: &str) -> Option<&'static Definition> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    pub fn tool(&self) -> Tool {
        let annotations = ToolAnnotations::new()
            .read_only(self.effect == Effect::Looks)
            .destructive(self.effect == Effect::Drops)
            .open_world(self.name == "run");
        Tool::new(self.name, self.description, schema(self.parameters)).annotate(annotations)
    }
}

fn run(given: &Given) -> Call {
    let script = given.text("command").unwrap_or_default().to_owned();
    let words = match given.number("transaction") {
        Some(transaction) => words(["exec", &transaction.to_string()]),
        None => {
            let retry = given.number("retry").map(|count| count.to_string());
            let mut run = words(["run"]);
            run.extend(option(
                "--message",
                Some(given.text("label").unwrap_or(&script)),
            ));
            run.extend(option("--retry", retry.as_deref()));
            // Nobody sits at the terminal, so nobody would look at what is kept.
            run.extend(option("--on-conflict", Some("abort")));
            run
        }
    };
    let seconds = given.number("timeout_seconds");
    Call::Command(Command {
        words,
        is_transaction: given.number("transaction").is_none(),
        script,
        input: given.text("input").unwrap_or_default().into(),
        timeout: Duration::from_secs(seconds.unwrap_or(TIMEOUT_SECONDS)),
    })
}

fn words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

/// One word, so that a value may begin with a dash.
fn option(name: &str, value: Option<&str>) -> Option<OsString> {
    value.map(|value| format!("{name}={value}").into())
}

fn id(given: &Given) -> String {
    given.number("transaction").unwrap_or_default().to_string()
}

fn named(verb: &str, given: &Given) -> Call {
    let name = given.text("name").unwrap_or_default();
    Call::Verb(words([verb, "--", name, &id(given)]))
}

fn with_paths(mut words: Vec<OsString>, given: &Given) -> Call {
    let paths = given.texts("paths");
    if !paths.is_empty() {
        words.push("--".into());
        words.extend(paths.into_iter().map(OsString::from));
    }
    Call::Verb(words)
}
