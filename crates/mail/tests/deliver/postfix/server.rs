//! A Postfix in namespaces of its own. It has users that the machine does not have, listens on no
//! port, sends no mail to other hosts, and all its processes end with it.

use crate::support::{PROGRAM, run};
use atomdir_testing::{shell, wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The users `vmail` and `ann` have the user ids of the owners of stores in these tests.
const USERS: &str = "root:x:0:0::/root:/bin/sh
vmail:x:65534:65534::/nonexistent:/bin/sh
ann:x:5:60::HOMES/home-games:/bin/sh
nobody:x:7001:7001::/nonexistent:/bin/sh
postfix:x:7002:7002::/nonexistent:/bin/sh
";
const GROUPS: &str = "root:x:0:
nogroup:x:65534:
games:x:60:
nobody:x:7001:
postfix:x:7002:
postdrop:x:7003:
";

/// Paths, and delays of one second. The queue manager must also wake up each second
/// (`qmgr` in `MASTER`): it may have put a message aside that a killed agent was delivering.
const MAIN: &str = "compatibility_level = 3.7
queue_directory = BASE/queue
data_directory = BASE/data
command_directory = PROGRAMS/usr/sbin
daemon_directory = PROGRAMS/usr/lib/postfix/sbin
shlib_directory = PROGRAMS/usr/lib/postfix
meta_directory = PROGRAMS/etc/postfix
maillog_file = BASE/log
maillog_file_prefixes = BASE
myhostname = mail.test
mydestination = mail.test
inet_interfaces = loopback-only
default_transport = error:nothing leaves this test
alias_maps =
alias_database =
local_header_rewrite_clients =
smtputf8_enable = no
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 1s
transport_retry_time = 1s
service_throttle_time = 1s
";
const MASTER: &str = "smtpd unix n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
flush unix n - n 1000 0 flush
retry unix - - n - - error
proxymap unix - - n - - proxymap
showq unix n - n - - showq
error unix - - n - - error
local unix - n n - - local
postlog unix-dgram n - n - 1 postlogd
";

pub struct Postfix {
    base: PathBuf,
    /// The program `unshare`, which waits for the first process of the namespace. When that ends, the
    /// kernel kills all others in the namespace.
    unshare: Child,
    first: Pid,
}

/// Starts the namespaces, and Postfix in them.
fn launch(package: &Path, base: &Path) -> Child {
    // ld.so.cache makes Postfix's libraries be found as if they were installed. The whole of /etc is
    // covered: a bind mount over a single file goes when the machine replaces that file.
    const ETC: &str = "cp -P /etc/nsswitch.conf /etc/services /etc/hosts .
        ln -sf /proc/self/mounts mtab
        /sbin/ldconfig -X -C ld.so.cache \"$1/usr/lib/postfix\"
        mount --bind . /etc";
    // Cover /tmp, because killed services leave empty directories there.
    const TMP: &str = "mkdir -m 1777 ../tmp; mount --bind ../tmp /tmp";
    const MASTER: &str = "exec \"$1/usr/lib/postfix/sbin/master\" -i -c \"$PWD\"";
    let is_in_tmp = |path: &&Path| path.starts_with("/tmp");
    let needs_tmp = [base, package, Path::new(PROGRAM)].iter().any(is_in_tmp);
    let tmp = if needs_tmp { "" } else { TMP };
    let mut command = Command::new("setpriv");
    // The kernel kills it when this thread ends, even if the thread is killed.
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--pid", "--mount", "--mount-proc", "--fork", "--kill-child"])
        .args(["/bin/sh", "-ec", &format!("{ETC}\n{tmp}\n{MASTER}"), "sh"])
        .arg(package)
        .current_dir(base.join("etc"))
        // A file, because `unshare` prints an error when a signal ends the namespace.
        .stderr(fs::File::create(base.join("errors")).expect("made"));
    command.spawn().expect("started")
}

impl Postfix {
    /// Starts Postfix. Adds `main` and `master` to main.cf and master.cf.
    pub fn start(package: &Path, scratch: &Path, main: &str, master: &str) -> Postfix {
        let base = scratch.join("postfix");
        let prepare = "mkdir -p postfix/etc postfix/data postfix/queue && cd postfix/queue
            mkdir active bounce corrupt defer deferred flush hold incoming private saved trace
            chown 7002 * ../data
            mkdir pid; mkdir -m 710 public; mkdir -m 1730 maildrop
            chown 7002:7003 public maildrop";
        shell(scratch, prepare);
        let write = |name: &str, text: &str| {
            let text = text
                .replace("BASE", &base.display().to_string())
                .replace("PROGRAMS", &package.display().to_string())
                .replace("HOMES", &scratch.display().to_string());
            fs::write(base.join("etc").join(name), text).expect("written");
        };
        write("passwd", USERS);
        write("group", GROUPS);
        write("main.cf", &format!("{MAIN}{main}"));
        write("master.cf", &format!("{MASTER}{master}"));
        let mut unshare = launch(package, &base);
        let parent = Pid::from_child(&unshare);
        let first = wait_for("the first process", || {
            let is_running = matches!(unshare.try_wait(), Ok(None));
            let errors = || fs::read_to_string(base.join("errors"));
            assert!(is_running, "Postfix cannot be started: {:?}", errors());
            processes()
                .into_iter()
                .find(|one| one.parent == Some(parent))
        });
        let postfix = Postfix {
            base,
            unshare,
            first: first.id,
        };
        wait_until("Postfix", || {
            UnixStream::connect(postfix.base.join("queue/public/smtpd")).is_ok()
        });
        postfix
    }

    /// Runs one of Postfix's commands in its namespaces.
    pub fn call(&self, package: &Path, name: &str, arguments: &[&str], input: &str) {
        let mut command = Command::new("nsenter");
        command
            .args(["--pid", "--mount", "--target"])
            .arg(self.first.as_raw_nonzero().to_string())
            .arg(package.join("usr/sbin").join(name))
            .args(arguments)
            .env("MAIL_CONFIG", self.base.join("etc"));
        run(&mut command, input).expect(0);
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.base.join("log")).unwrap_or_default()
    }

    /// Sends a message by SMTP. Returns its id in the queue, or why it was refused.
    pub fn send(&self, sender: &str, recipients: &[&str], message: &str) -> Result<String, String> {
        let stream = UnixStream::connect(self.base.join("queue/public/smtpd")).expect("connected");
        let mut answers = BufReader::new(stream.try_clone().expect("another handle")).lines();
        let mut stream = stream;
        let mut say = |text: &str| {
            stream.write_all(text.as_bytes()).expect("sent");
            loop {
                let answer = answers.next().expect("an answer").expect("read");
                match answer.as_bytes()[..4] {
                    [_, _, _, b'-'] => {}
                    [b'2' | b'3', ..] => return Ok(answer),
                    _ => return Err(answer),
                }
            }
        };
        say("")?;
        say("EHLO test\r\n")?;
        say(&format!("MAIL FROM:<{sender}>\r\n"))?;
        for recipient in recipients {
            say(&format!("RCPT TO:<{recipient}>\r\n"))?;
        }
        say("DATA\r\n")?;
        let lines = message.lines().map(|line| format!("{line}\r\n"));
        let queued = say(&format!("{}.\r\n", lines.collect::<String>()))?;
        Ok(queued.rsplit(' ').next().expect("an id").to_owned())
    }

    /// Waits until the message is delivered to all its recipients and removed from the queue.
    pub fn wait_until_done(&self, id: &str) {
        wait_until(&format!("the delivery of {id}"), || self.is_done(id));
    }

    pub fn is_done(&self, id: &str) -> bool {
        self.log().contains(&format!("{id}: removed"))
    }

    /// Waits until Postfix has tried to deliver the message and will try again.
    pub fn wait_until_deferred(&self, id: &str) {
        let is_it = |line: &str| line.contains(id) && line.contains("status=deferred");
        wait_until("a deferred message", || self.log().lines().any(is_it));
    }

    /// The processes in the namespace that run `program`. The parent is `None` if the agent that
    /// started the process has died, so that the namespace's first process is its parent now.
    pub fn running(&self, program: &str) -> Vec<Process> {
        let namespace = |id: Pid| fs::read_link(format!("/proc/{}/ns/pid", id.as_raw_nonzero()));
        let ours = namespace(self.first).ok();
        let is_ours = |one: &Process| {
            one.program == Path::new(program) && ours.is_some() && namespace(one.id).ok() == ours
        };
        let with_agent = |one: Process| Process {
            parent: one.parent.filter(|parent| *parent != self.first),
            ..one
        };
        let ours = processes().into_iter().filter(is_ours);
        ours.map(with_agent).collect()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = kill_process(self.first, Signal::KILL);
        // `unshare` ends when all processes of the namespace have ended.
        let _ = self.unshare.wait();
    }
}

pub struct Process {
    pub id: Pid,
    pub parent: Option<Pid>,
    pub program: PathBuf,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Some(Process {
            id,
            parent: Pid::from_raw(parent.trim().parse().ok()?),
            program: fs::read_link(entry.path().join("exe")).ok()?,
        })
    };
    entries.filter_map(process).collect()
}
