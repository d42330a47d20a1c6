//! Mail deliveries into a hundred mailboxes, by one process for each message, as a mail server starts
//! them; compared with Debian's maildrop and procmail, which use their own locks.

use std::fmt;
use std::fs::{self, FileTimes};
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::measure::{Side, in_turns, timed};
use crate::programs::{clear, make_directory, output};
use crate::report::Row;

const MAILBOXES: u64 = 100;
/// How many messages are delivered at a scale of 1.
pub const MESSAGES: u64 = 300;
const HEADER: &str = "X-Bench-Number: ";
/// The last line of each message.
const END: &str = "This is the end.";
/// Mail is not delivered to root, so root delivers to this user, Debian's `mail`. It is not `nobody`,
/// because procmail waits for long if the user's home directory is missing.
const RECIPIENT: u32 = 8;

/// The format of a mailbox.
#[derive(Clone, Copy, PartialEq)]
pub enum Format {
    Maildir,
    Mbox,
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Format::Maildir => "Maildir",
            Format::Mbox => "mbox",
        })
    }
}

pub struct Agent {
    pub side: Side,
    program: PathBuf,
}

pub fn deliveries(bench: &Bench) -> Result<Vec<Row>> {
    let agents = agents(bench);
    let mut rows = Vec::new();
    for format in [Format::Maildir, Format::Mbox] {
        for deliverers in [1, 6] {
            let sides: Vec<Side> = agents.iter().map(|agent| agent.side).collect();
            let messages = bench.scaled(MESSAGES);
            let measured = in_turns(bench.rounds, &sides, |side| {
                let agent = agents.iter().find(|agent| agent.side == side);
                let agent = agent.ok_or(Error::NoSide("deliver mail"))?;
                let delivery = Delivery::prepare(bench, agent, format, MAILBOXES.min(messages))?;
                bench.rest()?;
                let before = bench.device.written();
                let (mut sample, ()) = timed(|| delivery.deliver_all(deliverers, messages))?;
                sample.written = bench.device.written();
                if let (Some(written), Some(before)) = (&mut sample.written, before) {
                    written.flushes -= before.flushes;
                    written.bytes -= before.bytes;
                }
                delivery.check(messages)?;
                Ok(sample.into())
            })?;
            let row = Row::new(&format!("{format}, {deliverers} at once"), measured.whole);
            rows.push(row.note(&format!("{messages} messages of 4 KiB")));
        }
    }
    Ok(rows)
}

pub fn agents(bench: &Bench) -> Vec<Agent> {
    let ours = bench.program.with_file_name("atomdir-deliver");
    let known = [
        (Side::Tool, ours, "cargo build --release -p atomdir-mail"),
        (
            Side::Maildrop,
            "/usr/bin/maildrop".into(),
            "apt install maildrop",
        ),
        (
            Side::Procmail,
            "/usr/bin/procmail".into(),
            "apt install procmail",
        ),
    ];
    let mut agents = Vec::new();
    for (side, program, install) in known {
        match program.is_file() {
            true => agents.push(Agent { side, program }),
            false => eprintln!("SKIPPED {side}: {install}"),
        }
    }
    agents
}

/// The mailboxes of one side in one round. Dropping them stops the service.
pub struct Delivery<'a> {
    bench: &'a Bench,
    agent: &'a Agent,
    format: Format,
    directory: PathBuf,
    pub mail: PathBuf,
    message: Vec<u8>,
}

impl<'a> Delivery<'a> {
    pub fn prepare(
        bench: &'a Bench,
        agent: &'a Agent,
        format: Format,
        mailboxes: u64,
    ) -> Result<Delivery<'a>> {
        let directory = bench.directory.join(format!("deliveries-{}", agent.side));
        clear(&directory)?;
        let delivery = Delivery {
            bench,
            agent,
            format,
            mail: directory.join("mail"),
            directory,
            message: message(),
        };
        for path in [&delivery.directory, &delivery.mail] {
            make_directory(path)?;
            delivery.give_to_recipient(path)?;
        }
        if agent.side == Side::Tool {
            output(delivery.atomdir().arg("init"))?;
            output(delivery.atomdir().args(["config", "history-age", "off"]))?;
            output(delivery.atomdir().args(["run", "--", "true"]))?;
        }
        // Create all mailboxes before, so that only deliveries are measured.
        (0..mailboxes).try_for_each(|mailbox| {
            delivery.write_rules(mailbox)?;
            if agent.side == Side::Procmail && format == Format::Mbox {
                delivery.begin_mbox(mailbox)?;
            }
            delivery.deliver(mailbox, u64::MAX)
        })?;
        Ok(delivery)
    }

    /// A command that runs as the recipient, without this process's environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command.uid(RECIPIENT).gid(RECIPIENT);
        }
        command.env_clear().current_dir(&self.mail);
        command
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.directory);
        command.env("XDG_RUNTIME_DIR", &self.directory);
        command
    }

    fn atomdir(&self) -> Command {
        self.command(&self.bench.program)
    }

    fn mailbox(&self, number: u64) -> String {
        let slash = if self.format == Format::Maildir {
            "/"
        } else {
            ""
        };
        format!("{}/box-{number}{slash}", self.mail.display())
    }

    fn rules(&self, mailbox: u64) -> PathBuf {
        self.directory.join(format!("rules-{mailbox}"))
    }

    /// Writes the configuration that tells maildrop or procmail where to deliver. As their manuals
    /// say, procmail uses a lock file for an mbox.
    fn write_rules(&self, mailbox: u64) -> Result<()> {
        let path = self.mailbox(mailbox);
        let rules = match (self.agent.side, self.format) {
            (Side::Maildrop, _) => format!("to \"{path}\"\n"),
            (_, Format::Maildir) => format!(":0\n{path}\n"),
            (_, Format::Mbox) => format!(":0:\n{path}\n"),
        };
        let file = self.rules(mailbox);
        fs::write(&file, rules).describe("write", &file)?;
        self.give_to_recipient(&file)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&file, mode).describe("close", &file)?;
        if self.agent.side == Side::Maildrop && self.format == Format::Maildir {
            // Maildrop delivers to a Maildir only if it exists.
            let parts = ["tmp", "new", "cur"].map(|part| format!("{path}{part}"));
            let mut make = self.command("/usr/bin/mkdir".as_ref());
            output(make.arg("-p").args(parts))?;
        }
        Ok(())
    }

    /// Creates an mbox for procmail with an old access time: procmail waits until the next second if
    /// the mbox was read in the current one.
    fn begin_mbox(&self, mailbox: u64) -> Result<()> {
        let path = PathBuf::from(self.mailbox(mailbox));
        let first = format!("From bench Mon Nov  2 10:00:00 2026\nSubject: first\n\n{END}\n\n");
        fs::write(&path, first).describe("write", &path)?;
        let file = fs::File::options().write(true).open(&path);
        let earlier = FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH);
        let aged = file.and_then(|file| file.set_times(earlier));
        aged.describe("set the times of", &path)?;
        self.give_to_recipient(&path)
    }

    fn give_to_recipient(&self, path: &Path) -> Result<()> {
        match rustix::process::geteuid().is_root() {
            true => chown(path, Some(RECIPIENT), Some(RECIPIENT)).describe("own", path),
            false => Ok(()),
        }
    }

    pub fn deliver(&self, mailbox: u64, number: u64) -> Result<()> {
        let mut command = self.delivery_to(mailbox);
        let mut child = self.start(&mut command, number)?;
        let status = child.wait().describe("await", &self.agent.program)?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Command {
                command: format!("{command:?}"),
                status,
                output: String::new(),
            }),
        }
    }

    /// Starts a delivery and kills it after the time `then`. Returns whether it had ended before.
    pub fn deliver_and_kill(&self, mailbox: u64, number: u64, then: Duration) -> Result<bool> {
        let mut child = self.start(&mut self.delivery_to(mailbox), number)?;
        thread::sleep(then);
        // This fails if the process has ended.
        let _ = child.kill();
        let status = child.wait().describe("await", &self.agent.program)?;
        Ok(status.code().is_some())
    }

    fn delivery_to(&self, mailbox: u64) -> Command {
        let mut command = self.command(&self.agent.program);
        match self.agent.side {
            Side::Tool => command
                .args(["-f", "sender@example.org", "-m"])
                .arg(self.mailbox(mailbox)),
            _ => command.arg(self.rules(mailbox)),
        };
        command
    }

    /// Starts a delivery, and writes the message to its input.
    fn start(&self, command: &mut Command, number: u64) -> Result<Child> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .describe("start", &self.agent.program)?;
        let mut message = format!("{HEADER}{number}\n").into_bytes();
        message.extend(&self.message);
        // A delivery that fails may not read all of it. Its exit code shows that.
        let _ = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(&message));
        Ok(child)
    }

    fn deliver_all(&self, deliverers: u64, messages: u64) -> Result<()> {
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            let work = || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= messages {
                        return Ok(());
                    }
                    self.deliver(number % MAILBOXES, number)?;
                }
            };
            let running: Vec<_> = (0..deliverers).map(|_| scope.spawn(work)).collect();
            running.into_iter().try_for_each(|thread| {
                let joined = thread.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// How many messages in this file are cut off: they have a first line, and no last line.
    pub fn cut_off_in(&self, text: &str) -> usize {
        let start = match self.format {
            Format::Mbox => "From ",
            Format::Maildir => HEADER,
        };
        let count =
            |wanted: &dyn Fn(&str) -> bool| text.lines().filter(|line| wanted(line)).count();
        let [starts, ends] = [
            count(&|line| line.starts_with(start)),
            count(&|line| line == END),
        ];
        starts.saturating_sub(ends)
    }

    /// Stops the service. Whatever files are left after that stay.
    pub fn end_service(&self) -> Result<()> {
        if self.agent.side == Side::Tool {
            output(self.atomdir().args(["service", "stop", "--abort"]))?;
        }
        Ok(())
    }

    /// Checks that every message has arrived.
    fn check(&self, messages: u64) -> Result<()> {
        let script = format!("cat box-* box-*/new/* 2> /dev/null | grep -c '^{HEADER}'; true");
        let mut count = Command::new("/bin/sh");
        let found = output(count.args(["-c", &script]).current_dir(&self.mail))?;
        let found = found.trim().parse().unwrap_or(0_u64);
        let expected = messages + MAILBOXES.min(messages);
        match found == expected {
            true => Ok(()),
            false => Err(Error::Delivered { expected, found }),
        }
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        // Ignore errors: if one brought us here, it is being reported.
        let _ = self.end_service();
        let _ = clear(&self.directory);
    }
}

/// A message of about 4 KiB, as a mail server passes it.
fn message() -> Vec<u8> {
    let mut message =
        b"Received: from example.org by bench with ESMTP id 1; Mon, 2 Nov 2026 10:00:00 +0000\n\
        From: sender@example.org\nTo: recipient@example.org\nSubject: figures\n\n"
            .to_vec();
    while message.len() < 4000 {
        message.extend(b"The quick brown fox jumps over the lazy dog, line after line.\n");
    }
    message.extend(format!("{END}\n").as_bytes());
    message
}
