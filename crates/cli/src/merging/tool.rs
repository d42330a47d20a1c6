//! Runs the user's merge tool.

use crate::changes::ThreeWay;
use crate::context::Context;
use crate::error::Error;
use crate::files;
use rustix::fs::{CWD, Mode, OFlags, chmod, mkdir, open};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;

/// The variable with a command for the shell, as git's `mergetool.<tool>.cmd` has it.
const VARIABLE: &str = "ATOMDIR_MERGE";

/// Lets the tool merge the texts. Returns why it has not as the inner error.
pub fn run(
    context: &Context,
    texts: &ThreeWay,
    marked: &[u8],
) -> Result<Result<Vec<u8>, String>, Error> {
    let Some(command) = command() else {
        return Err(Error::Usage {
            message: format!(
                "no merge tool is set for {}",
                crate::output::quoted(&texts.path)
            ),
            hint: Some(format!(
                "set {VARIABLE}, for example to 'meld \"$LOCAL\" \"$MERGED\" \"$REMOTE\"', or git's \
                 merge.tool and mergetool.<tool>.cmd"
            )),
        });
    };
    let merged = merge(texts, marked, &command).map_err(Error::Tool)?;
    if merged.is_none() {
        context
            .output
            .note(format_args!("the merge tool failed: {command:?}"));
    }
    Ok(merged.ok_or_else(|| "the merge tool has not merged it".to_owned()))
}

fn merge(texts: &ThreeWay, marked: &[u8], command: &OsString) -> io::Result<Option<Vec<u8>>> {
    let scratch = tempfile::Builder::new()
        .prefix("atomdir-merge-")
        .tempdir()?;
    // What is merged may be secret.
    chmod(scratch.path(), Mode::RWXU)?;
    // Tools choose colours by the name's ending.
    let name = texts.path.rsplit(|byte| *byte == b'/').next();
    let name = OsString::from_vec(name.unwrap_or_default().to_vec());
    let mut run = Command::new("sh");
    run.arg("-c").arg(command);
    let mut merged = PathBuf::new();
    for (variable, text) in [
        ("BASE", &texts.ancestor[..]),
        ("LOCAL", &texts.mine),
        ("REMOTE", &texts.theirs),
        ("MERGED", marked),
    ] {
        let directory = scratch.path().join(variable);
        mkdir(&directory, Mode::RWXU)?;
        merged = directory.join(&name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = open(&merged, flags, Mode::RUSR | Mode::WUSR)?;
        files::write_all_at(&file, text, 0)?;
        run.env(variable, &merged);
    }
    let status = run.status()?;
    let read = || files::read_at(CWD, &merged);
    Ok(status.success().then(read).transpose()?)
}

/// What to run: the variable's value, or what git has been configured with.
fn command() -> Option<OsString> {
    if let Some(command) = std::env::var_os(VARIABLE).filter(|command| !command.is_empty()) {
        return Some(command);
    }
    let tool = git_setting("merge.tool")?;
    git_setting(&format!("mergetool.{}.cmd", tool.to_str()?))
}

fn git_setting(key: &str) -> Option<OsString> {
    let found = Command::new("git")
        .args(["config", "--get", key])
        .output()
        .ok()?;
    let value = found.status.success().then_some(found.stdout)?;
    let value = value.strip_suffix(b"\n").unwrap_or(&value).to_vec();
    (!value.is_empty()).then(|| OsString::from_vec(value))
}
