//! Runs the user's merge tool, and decides whether it has merged a text.
//!
//! Many tools exit with 0 when their user quits without a decision. So, as in git, the exit code is
//! trusted alone only if the tool's `trustExitCode` is set. Otherwise the result must also be free
//! of the markers. A file that the tool has not changed is never merged.

use crate::context::Context;
use crate::error::Error;
use crate::files;
use atomdir::client::three_way::ThreeWay;
use rustix::fs::{CWD, Mode, OFlags, chmod, mkdir, open};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

/// The variable with a command for the shell, as git's `mergetool.<tool>.cmd` has it.
const VARIABLE: &str = "ATOMDIR_MERGE";

/// Runs a tool that git knows by name, by the library that git has for this (git-mergetool--lib(1)). Older
/// versions of it have no `initialize_merge_tool`.
const KNOWN_TO_GIT: &str = r#"
. "$(git --exec-path)/git-mergetool--lib"
if type initialize_merge_tool > /dev/null 2>&1; then
    initialize_merge_tool "$ATOMDIR_TOOL" || exit
fi
run_merge_tool "$ATOMDIR_TOOL" true
"#;

/// Lets the tool merge the texts. Returns why it has not as the inner error.
pub fn run(
    context: &Context,
    texts: &ThreeWay,
    marked: &[u8],
) -> Result<Result<Vec<u8>, String>, Error> {
    let Some(tool) = tool() else {
        return Err(Error::Usage {
            message: format!(
                "no merge tool is set for {}",
                crate::output::quoted(texts.path.as_os_str().as_bytes())
            ),
            hint: Some(format!(
                "set {VARIABLE}, for example to 'meld \"$LOCAL\" \"$MERGED\" \"$REMOTE\"', or git's \
                 merge.tool"
            )),
        });
    };
    let merged = merge(texts, marked, &tool).map_err(Error::Tool)?;
    let why_not = match &merged {
        None => {
            let name = tool.name.as_ref().unwrap_or(&tool.command);
            context
                .output
                .note(format_args!("the merge tool failed: {name:?}"));
            Some("the merge tool has not merged it")
        }
        Some(text) if text == marked => Some("the merge tool has not changed it"),
        Some(text) if !tool.exit_code_is_trusted && has_markers(text, texts) => {
            Some("the merge tool has left conflict markers in it")
        }
        Some(_) => None,
    };
    Ok(match why_not {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(merged.unwrap_or_default()),
    })
}

/// Whether a line is a marker, and none of the merged texts has this line.
fn has_markers(result: &[u8], texts: &ThreeWay) -> bool {
    let sources = [&texts.ancestor, &texts.mine, &texts.theirs];
    let is_ours = |line: &[u8]| {
        let has_it = |text: &&Vec<u8>| lines(text).any(|one| one == line);
        is_marker(line) && !sources.iter().any(has_it)
    };
    lines(result).any(is_ours)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn is_marker(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    [b"<<<<<<<", b"|||||||", b">>>>>>>"].iter().any(|marker| {
        let rest = line.strip_prefix(&marker[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b" "))
    })
}

fn merge(texts: &ThreeWay, marked: &[u8], tool: &Tool) -> io::Result<Option<Vec<u8>>> {
    let scratch = tempfile::Builder::new()
        .prefix("atomdir-merge-")
        .tempdir()?;
    // The texts may be secret.
    chmod(scratch.path(), Mode::RWXU)?;
    // Tools choose colours by the name's ending.
    let name = texts.path.file_name().unwrap_or_default();
    let mut run = Command::new("sh");
    run.arg("-c").arg(&tool.command);
    if let Some(name) = &tool.name {
        run.env("ATOMDIR_TOOL", name).env("TOOL_MODE", "merge");
        run.env("BACKUP", scratch.path().join("BACKUP"));
    }
    let mut merged = PathBuf::new();
    for (variable, text) in [
        ("BASE", &texts.ancestor[..]),
        ("LOCAL", &texts.mine),
        ("REMOTE", &texts.theirs),
        ("MERGED", marked),
    ] {
        let directory = scratch.path().join(variable);
        mkdir(&directory, Mode::RWXU)?;
        merged = directory.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = open(&merged, flags, Mode::RUSR | Mode::WUSR)?;
        files::write_all_at(&file, text, 0)?;
        run.env(variable, &merged);
    }
    let status = run.status()?;
    let read = || files::read_at(CWD, &merged);
    Ok(status.success().then(read).transpose()?)
}

struct Tool {
    command: OsString,
    /// The tool's name, if git knows it.
    name: Option<OsString>,
    exit_code_is_trusted: bool,
}

/// What to run: the variable's value, or what git has been configured with.
fn tool() -> Option<Tool> {
    if let Some(command) = std::env::var_os(VARIABLE).filter(|command| !command.is_empty()) {
        return Some(Tool {
            command,
            name: None,
            exit_code_is_trusted: false,
        });
    }
    let name = git_setting(&["merge.tool"])?;
    let key = |setting| Some(format!("mergetool.{}.{setting}", name.to_str()?));
    let trust = git_setting(&["--bool", &key("trustExitCode")?]);
    let exit_code_is_trusted = trust.is_some_and(|is| is == "true");
    Some(match git_setting(&[&key("cmd")?]) {
        Some(command) => Tool {
            command,
            name: None,
            exit_code_is_trusted,
        },
        None => Tool {
            command: KNOWN_TO_GIT.into(),
            name: Some(name),
            exit_code_is_trusted,
        },
    })
}

fn git_setting(arguments: &[&str]) -> Option<OsString> {
    let found = Command::new("git")
        .args(["config", "--get"])
        .args(arguments)
        .output()
        .ok()?;
    let value = found.status.success().then_some(found.stdout)?;
    let value = value.strip_suffix(b"\n").unwrap_or(&value).to_vec();
    (!value.is_empty()).then(|| OsString::from_vec(value))
}
