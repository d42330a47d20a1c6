//! Running `atomdir`, and what it printed.

use crate::tools::Command;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The most of a verb's answer that is passed on.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How much of each end of a command's output is passed on.
const OUTPUT_BYTES_EACH_END: usize = 16 << 10;
/// Of an outcome, which may list many conflicts.
const OUTCOME_BYTES_EACH_END: usize = 16 << 20;
/// How long a command that was asked to end has for it.
const GRACE: Duration = Duration::from_secs(10);
/// How long output is read after the end of a command that has left others behind.
const LINGER: Duration = Duration::from_millis(500);

/// The command `atomdir`, and the options for each call of it.
pub struct Program {
    path: OsString,
    options: Vec<OsString>,
}

/// What a tool answers. Both are JSON objects.
pub type Answer = Result<Value, Value>;

impl Program {
    pub fn new(path: OsString, options: Vec<OsString>) -> Program {
        Program { path, options }
    }

    fn command(&self, words: &[OsString]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.path);
        let options = ["--json", "--no-pager"].map(OsString::from);
        command.args(&words[..1]).args(options).args(&self.options);
        command.args(&words[1..]);
        // Signals of a terminal are for the client.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a verb that prints one JSON object.
    pub async fn verb(&self, words: &[OsString], cancelled: impl Future<Output = ()>) -> Answer {
        let mut child = self
            .command(words)
            .spawn()
            .map_err(|error| self.not_started(&error))?;
        let output = keep(child.stdout.take(), ANSWER_BYTES_MAX);
        let errors = keep(child.stderr.take(), ANSWER_BYTES_MAX);
        let ended = end(&mut child, None, cancelled)
            .await
            .map_err(|error| failure(&error, None))?;
        let (output, errors) = (output.take().await, errors.take().await);
        if !ended.status.success() {
            return Err(
                find_failure(&errors.text()).unwrap_or_else(|| match ended.why {
                    Some(why) => failure(&format!("the command was ended: {why}"), None),
                    None => failure(&format!("atomdir ended: {}", ended.status), None),
                }),
            );
        }
        if output.left_out > 0 {
            return Err(failure(
                &format!("the answer has more than {ANSWER_BYTES_MAX} bytes"),
                Some("name paths, or ask for `stat`"),
            ));
        }
        let text = output.text();
        match serde_json::from_str(text.trim()) {
            Ok(value @ Value::Object(_)) => Ok(value),
            _ => Ok(json!({"output": text.trim()})),
        }
    }

    /// Runs a command in a transaction. That it exits with another code than 0 is no error of the
    /// tool.
    pub async fn run(&self, run: &Command, cancelled: impl Future<Output = ()>) -> Answer {
        let mut words = run.words.clone();
        let mut outcome = None;
        if run.is_transaction {
            let (reader, writer) = std::io::pipe().map_err(|error| self.not_started(&error))?;
            let reader = Receiver::from_owned_fd(reader.into());
            let reader = reader.map_err(|error| self.not_started(&error))?;
            // No other process is started before this one: there is one thread, and nothing
            // is awaited.
            fcntl_setfd(&writer, FdFlags::empty())
                .map_err(|errno| self.not_started(&errno.into()))?;
            words.push(format!("--status-fd={}", writer.as_raw_fd()).into());
            outcome = Some((reader, writer));
        }
        words.extend(["--", "/bin/sh", "-c", &run.script].map(OsString::from));
        let mut command = self.command(&words);
        command.stdin(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        // Read from the start: a long outcome is more than a pipe holds.
        let outcome = outcome.map(|(reader, _)| keep(Some(reader), OUTCOME_BYTES_EACH_END));
        let (stdin, input) = (child.stdin.take(), run.input.clone());
        let feeding = tokio::spawn(async move {
            if let Some(mut stdin) = stdin {
                // A command need not read its input.
                let _ = stdin.write_all(&input).await;
            }
        });
        let output = keep(child.stdout.take(), OUTPUT_BYTES_EACH_END);
        let errors = keep(child.stderr.take(), OUTPUT_BYTES_EACH_END);
        let ended = end(&mut child, Some(run.timeout), cancelled).await;
        feeding.abort();
        let ended = ended.map_err(|error| failure(&error, None))?;
        let (output, errors) = (output.take().await, errors.take().await);
        let outcome = match outcome {
            Some(outcome) => serde_json::from_str(&outcome.take().await.text()).ok(),
            None => None,
        };
        let mut answer = json!({
            "exit_code": ended.status.code(),
            "stdout": output.text(),
            "stderr": errors.text(),
        });
        if let Some(why) = ended.why {
            answer["ended"] = json!(why);
        }
        let failed = outcome.as_ref().and_then(find_unsuccessful);
        let failed = failed.or_else(|| own_failure(&errors.text(), ended.status));
        let failed = failed.or_else(|| {
            let is_unknown = run.is_transaction && outcome.is_none();
            is_unknown.then(|| failure("atomdir did not report what became of it", Some("see log")))
        });
        if let Some(outcome) = outcome {
            answer["outcome"] = outcome;
        }
        match failed {
            None => Ok(answer),
            Some(mut failed) => {
                failed["run"] = answer;
                Err(failed)
            }
        }
    }

    fn not_started(&self, error: &std::io::Error) -> Value {
        let path = self.path.to_string_lossy();
        failure(&format!("cannot run {path}: {error}"), None)
    }
}

pub fn failure(message: &str, hint: Option<&str>) -> Value {
    json!({"error": {"message": message, "hint": hint}})
}

/// The failure that the command printed as the last JSON object on standard error.
fn find_failure(errors: &str) -> Option<Value> {
    let lines = errors.lines().rev();
    let mut objects = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    objects.find(|object| object["error"].is_object())
}

/// A failure of atomdir itself, not of the command that it ran.
fn own_failure(errors: &str, status: ExitStatus) -> Option<Value> {
    let found = find_failure(errors)?;
    let code = found["error"]["exit_code"].as_i64();
    (code == status.code().map(i64::from)).then_some(found)
}

/// The outcome of a `run` whose command succeeded and whose commit did not.
fn find_unsuccessful(outcome: &Value) -> Option<Value> {
    let kind = outcome["outcome"].as_str()?;
    matches!(kind, "conflict" | "failed").then(|| {
        let hint = match kind {
            "conflict" => {
                "others changed the same things meanwhile: call run again, or with `retry`"
            }
            _ => "the message says what to do",
        };
        let mut failed = failure(outcome["message"].as_str().unwrap_or(kind), Some(hint));
        failed["error"]["exit_code"] = outcome["exit_code"].clone();
        failed
    })
}

struct Ended {
    status: ExitStatus,
    /// Why we ended it, if we did.
    why: Option<&'static str>,
}

/// Waits for the end of a process, or ends it and what it has started.
async fn end(
    child: &mut Child,
    limit: Option<Duration>,
    cancelled: impl Future<Output = ()>,
) -> Result<Ended, String> {
    let failed = |error: std::io::Error| format!("cannot wait for atomdir: {error}");
    let far = Duration::from_secs(365 * 24 * 60 * 60);
    let why = tokio::select! {
        status = child.wait() => return Ok(Ended { status: status.map_err(failed)?, why: None }),
        () = cancelled => "the client has cancelled the call",
        () = tokio::time::sleep(limit.unwrap_or(far)) => "it took longer than `timeout_seconds`",
    };
    let process = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(process) = process {
        // It passes the signal on, and then aborts what it has begun.
        let _ = kill_process(process, Signal::TERM);
        let _ = timeout(GRACE, child.wait()).await;
        // A shell that ends for the signal leaves what it has started.
        let _ = kill_process_group(process, Signal::KILL);
    }
    let status = child.wait().await.map_err(failed)?;
    let why = Some(why);
    Ok(Ended { status, why })
}

/// Both ends of what a process wrote.
#[derive(Default)]
struct Kept {
    start: Vec<u8>,
    end: Vec<u8>,
    left_out: usize,
}

impl Kept {
    fn add(&mut self, bytes: &[u8], each_end: usize) {
        let to_start = bytes.len().min(each_end - self.start.len());
        self.start.extend(&bytes[..to_start]);
        self.end.extend(&bytes[to_start..]);
        let too_many = self.end.len().saturating_sub(each_end);
        self.end.drain(..too_many);
        self.left_out += too_many;
    }

    fn text(&self) -> String {
        let (start, end) = (&self.start, &self.end);
        match self.left_out {
            0 => String::from_utf8_lossy(&[start.as_slice(), end].concat()).into_owned(),
            count => format!(
                "{}\n[... {count} bytes left out ...]\n{}",
                String::from_utf8_lossy(start),
                String::from_utf8_lossy(end)
            ),
        }
    }
}

/// Reads what a process writes, in the background.
struct Keeping {
    kept: std::sync::Arc<std::sync::Mutex<Kept>>,
    reading: JoinHandle<()>,
}

fn keep<R: AsyncRead + Unpin + Send + 'static>(reader: Option<R>, each_end: usize) -> Keeping {
    let kept = std::sync::Arc::new(std::sync::Mutex::new(Kept::default()));
    let to = kept.clone();
    let reading = tokio::spawn(async move {
        let Some(mut reader) = reader else { return };
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count) = reader.read(&mut buffer).await
            && count > 0
            && let Ok(mut kept) = to.lock()
        {
            kept.add(&buffer[..count], each_end);
        }
    });
    Keeping { kept, reading }
}

impl Keeping {
    /// A process that the command has left behind may hold the other end for long.
    async fn take(mut self) -> Kept {
        if timeout(LINGER, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        self.kept
            .lock()
            .map(|mut kept| std::mem::take(&mut *kept))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_both_ends() {
        let mut kept = Kept::default();
        for byte in b'a'..=b'z' {
            kept.add(&[byte; 2], 4);
        }
        assert_eq!(kept.text(), "aabb\n[... 44 bytes left out ...]\nyyzz");
        let mut short = Kept::default();
        short.add(b"abcdef", 4);
        assert_eq!(short.text(), "abcdef");
    }

    #[test]
    fn only_a_failure_of_atomdir_is_an_error() {
        let failed = r#"{"error": {"message": "m", "hint": null, "exit_code": 66}}"#;
        assert!(find_failure(&format!("noise\n{failed}\n")).is_some());
        assert!(find_failure("error: no JSON").is_none());
        let conflict = json!({"outcome": "conflict", "message": "m", "exit_code": 75});
        assert_eq!(
            find_unsuccessful(&conflict).expect("an error")["error"]["exit_code"],
            75
        );
        assert!(find_unsuccessful(&json!({"outcome": "aborted"})).is_none());
    }
}
