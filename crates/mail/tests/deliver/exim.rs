//! Exim, which delivers through a pipe. It runs in a mount namespace of its own, where the users that
//! it needs exist.

use crate::support::{PROGRAM, fixture, message, package, read_mbox, run};
use atomdir_testing::shell;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CONFIGURATION: &str = r#"
primary_hostname = test.invalid
# Run by another user with this file (-C), Exim would give up root's rights.
exim_user = root
exim_group = root
exim_path = EXIM
log_file_path = BASE/exim/%slog
spool_directory = BASE/exim/spool
keep_environment =
never_users =
trusted_users = root
begin routers
local:
  driver = accept
  transport = deliver
begin transports
deliver:
  driver = pipe
  command = PROGRAM -d nobody -m STORE/bob
  user = nobody
  group = nogroup
  home_directory = BASE
  delivery_date_add
  temp_errors = 75
  freeze_signal
begin retry
* * F,1d,1s
"#;

const USERS: &str = "root:x:0:0::/root:/bin/sh
nobody:x:65534:65534::/nonexistent:/bin/sh
Debian-exim:x:7004:7004::/nonexistent:/bin/sh
";
const GROUPS: &str = "root:x:0:
nogroup:x:65534:
Debian-exim:x:7004:
";

/// A mount namespace in which another directory covers /etc.
struct Namespace(Child);

impl Namespace {
    fn new(etc: &Path) -> Namespace {
        // The whole of /etc is covered: a bind mount over a single file goes when the machine
        // replaces that file.
        const HOLD: &str = "cp -P /etc/nsswitch.conf /etc/services /etc/hosts .
            ln -sf /proc/self/mounts mtab; mount --bind . /etc && echo ready && read line";
        let mut command = Command::new("unshare");
        command.args(["--mount", "/bin/sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.current_dir(etc).spawn().expect("started");
        let output = holder.stdout.as_mut().expect("it is piped");
        let mut line = [0; 6];
        output.read_exact(&mut line).expect("it is ready");
        Namespace(holder)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.0.id().to_string();
        command.args(["--mount", "--target", &target]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn exim_delivers_and_tries_again_after_a_kill() {
    const TEST: &str = "exim_delivers_and_tries_again_after_a_kill";
    let Some(package) = package(TEST, "exim4-daemon-light", "usr/sbin/exim4") else {
        return;
    };
    let Some(fixture) = fixture("mail-exim", "") else {
        return;
    };
    let scratch = fixture.scratch.path().display().to_string();
    // The first delivery to bob is killed after its commit, before it exits with 0.
    let wrapper = fixture.scratch.join("killed-once");
    let script = format!(
        "#!/bin/sh\n{PROGRAM} \"$@\" || exit\n[ -e {scratch}/mark/killed ] || {{ : > {scratch}/mark/killed; kill -KILL $$; }}\n"
    );
    std::fs::write(&wrapper, script).expect("written");
    shell(
        fixture.scratch.path(),
        "chmod 755 killed-once; mkdir -m 1777 mark; mkdir -p exim/spool exim/etc; chmod 777 exim exim/spool",
    );
    let etc = fixture.scratch.join("exim/etc");
    std::fs::write(etc.join("passwd"), USERS).expect("written");
    std::fs::write(etc.join("group"), GROUPS).expect("written");
    let namespace = Namespace::new(&etc);
    let binary = package.join("usr/sbin/exim4");
    let exim = |program: &str, arguments: &[&str]| {
        let configuration = CONFIGURATION
            .replace("BASE", &scratch)
            .replace("EXIM", &binary.display().to_string())
            .replace("PROGRAM", program)
            .replace("STORE", &fixture.base.display().to_string());
        let path = fixture.scratch.join("exim.conf");
        std::fs::write(&path, configuration).expect("written");
        let mut command = namespace.command(&binary);
        command.arg("-C").arg(path).args(arguments);
        command
    };
    let wrapper = wrapper.to_str().expect("UTF-8");
    run(
        &mut exim(
            wrapper,
            &["-odi", "-oi", "-f", "ann@test.invalid", "bob@test.invalid"],
        ),
        &message(1, 500),
    )
    .expect(0);
    let read = || read_mbox(&fixture.base.join("bob"));
    let log = std::fs::read_to_string(fixture.scratch.join("exim/mainlog")).unwrap_or_default();
    assert_eq!(read().len(), 1, "{log}");
    let waiting = |log: &str| log.contains("Completed");
    assert!(!waiting(&log), "{log}");
    run(&mut exim(wrapper, &["-qff"]), "").expect(0);
    let log = std::fs::read_to_string(fixture.scratch.join("exim/mainlog")).unwrap_or_default();
    assert!(waiting(&log), "{log}");
    assert_eq!(read().len(), 1, "{log}");
    assert!(
        read()[0].contains("Message-ID: <1@test>") || read()[0].contains("Message-Id: <1@test>"),
        "{:?}",
        read()
    );
}
