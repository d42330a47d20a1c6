//! Exim, which delivers through a pipe.

use crate::support::{PROGRAM, fixture, message, read_mbox, run};
use atomdir_testing::{shell, tools_present};
use std::process::Command;

const CONFIGURATION: &str = r#"
primary_hostname = test.invalid
# Run by another user with this file (-C), Exim would give up root's rights.
exim_user = root
exim_group = root
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

#[test]
fn exim_delivers_and_tries_again_after_a_kill() {
    if !tools_present("exim", &["exim4"]) {
        return;
    }
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
        "chmod 755 killed-once; mkdir -m 1777 mark; mkdir -p exim/spool; chmod 777 exim exim/spool",
    );
    let exim = |program: &str, arguments: &[&str]| {
        let configuration = CONFIGURATION
            .replace("BASE", &scratch)
            .replace("PROGRAM", program)
            .replace("STORE", &fixture.base.display().to_string());
        let path = fixture.scratch.join("exim.conf");
        std::fs::write(&path, configuration).expect("written");
        let mut command = Command::new("exim4");
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
