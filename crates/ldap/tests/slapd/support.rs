//! slapd servers, each in a directory of its own, and the programs of ldap-utils.

use atomdir_testing::{Outcome, Scratch, capture_output, tools_present, wait_until};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub const SUFFIX: &str = "dc=example,dc=org";
const ROOT: &str = "cn=admin,dc=example,dc=org";
const PASSWORD: &str = "secret";
const SCHEMAS: [&str; 3] = ["core", "cosine", "inetorgperson"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Ldif,
    Atomdir,
}

pub fn is_possible(test: &str) -> bool {
    tools_present(test, &["slapd", "slapcat", "ldapmodify", "ldapsearch"])
}

/// A running slapd, with its `atomdir-ldap` if it uses one. Dropping it kills both.
pub struct Slapd {
    pub scratch: Scratch,
    backend: Backend,
    slapd: Child,
    behind: Option<Child>,
}

impl Slapd {
    pub fn start(name: &str, backend: Backend) -> Slapd {
        let scratch = Scratch::new(&format!("{name}-{backend:?}").to_lowercase());
        std::fs::create_dir(scratch.join("db")).unwrap();
        if backend == Backend::Atomdir {
            atomdir::init(scratch.join("db"), None).expect("a new directory");
        }
        Slapd {
            behind: serve(&scratch, backend),
            slapd: start(&scratch, backend),
            scratch,
            backend,
        }
    }

    pub fn database(&self) -> PathBuf {
        self.scratch.join("db")
    }

    /// Kills both servers, and starts them again.
    pub fn restart(&mut self) {
        self.kill();
        self.behind = serve(&self.scratch, self.backend);
        self.slapd = start(&self.scratch, self.backend);
    }

    pub fn kill(&mut self) {
        for server in [Some(&mut self.slapd), self.behind.as_mut()]
            .into_iter()
            .flatten()
        {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// A command that runs a program of ldap-utils as the administrator.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let url = url(&self.scratch);
        command.args(["-x", "-H", &url, "-D", ROOT, "-w", PASSWORD]);
        command
    }

    /// Carries the changes out in turn. Goes on after one that fails.
    pub fn change(&self, ldif: &str) -> Outcome {
        let file = self.scratch.join("changes.ldif");
        std::fs::write(&file, ldif).unwrap();
        capture_output(self.client("ldapmodify").arg("-c").arg("-f").arg(&file))
    }

    /// A search's exit code, and the entries that it finds, sorted, with sorted lines. Leaves out
    /// attributes that depend on time or chance.
    pub fn search(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        let mut command = self.client("ldapsearch");
        command
            .args(["-LLL", "-o", "ldif-wrap=no", "-b", SUFFIX])
            .args(arguments);
        let outcome = capture_output(&mut command);
        (outcome.code, entries(&outcome.text()))
    }

    /// The entries that slapcat reads from the database's directory by back-ldif.
    pub fn slapcat(&self) -> Vec<String> {
        let configuration = self.scratch.join("slapcat.conf");
        std::fs::write(
            &configuration,
            self::configuration(&self.scratch, Backend::Ldif),
        )
        .unwrap();
        let mut command = Command::new("slapcat");
        command
            .arg("-o")
            .arg("ldif-wrap=no")
            .arg("-f")
            .arg(&configuration);
        entries(&capture_output(&mut command).expect(0).text())
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn entries(text: &str) -> Vec<String> {
    const OF_CHANCE: [&str; 5] = [
        "entryUUID",
        "entryCSN",
        "createTimestamp",
        "modifyTimestamp",
        "entryDN",
    ];
    let mut entries: Vec<String> = text
        .split("\n\n")
        .map(|entry| {
            let lines = entry.lines().filter(|line| {
                let name = line.split(':').next().unwrap_or_default();
                !OF_CHANCE.contains(&name)
            });
            let mut lines: Vec<&str> = lines.collect();
            lines.sort_unstable();
            lines.join("\n")
        })
        .filter(|entry| !entry.is_empty())
        .collect();
    entries.sort_unstable();
    entries
}

fn url(scratch: &Scratch) -> String {
    let path = scratch.join("ldapi");
    format!("ldapi://{}", path.to_str().unwrap().replace('/', "%2F"))
}

fn schema(name: &str) -> String {
    format!("/etc/ldap/schema/{name}.schema")
}

fn configuration(scratch: &Scratch, backend: Backend) -> String {
    let mut text = String::new();
    for name in SCHEMAS {
        text.push_str(&format!("include {}\n", schema(name)));
    }
    let path = scratch.path().display();
    text.push_str(&format!("pidfile {path}/pid\nargsfile {path}/arguments\n"));
    let names = format!("suffix \"{SUFFIX}\"\nrootdn \"{ROOT}\"\n");
    text.push_str(&match backend {
        Backend::Ldif => format!("database ldif\n{names}rootpw {PASSWORD}\ndirectory {path}/db\n"),
        Backend::Atomdir => format!(
            "modulepath /usr/lib/ldap\nmoduleload back_sock\ndatabase sock\n{names}\
             socketpath {path}/socket\nextensions binddn\n"
        ),
    });
    text
}

fn serve(scratch: &Scratch, backend: Backend) -> Option<Child> {
    if backend == Backend::Ldif {
        return None;
    }
    std::fs::write(scratch.join("password"), PASSWORD).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomdir-ldap"));
    command.arg("--directory").arg(scratch.join("db"));
    command.arg("--socket").arg(scratch.join("socket"));
    command.args(["--suffix", SUFFIX, "--root-dn", ROOT]);
    command
        .arg("--root-password-file")
        .arg(scratch.join("password"));
    for name in SCHEMAS {
        command.args(["--schema", &schema(name)]);
    }
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    Some(server)
}

fn start(scratch: &Scratch, backend: Backend) -> Child {
    let file = scratch.join("slapd.conf");
    std::fs::write(&file, configuration(scratch, backend)).unwrap();
    // Remove the socket of a killed server, so that `is_ready` cannot take it for the new one.
    let _ = std::fs::remove_file(scratch.join("ldapi"));
    let mut command = Command::new("slapd");
    command
        .args(["-d", "0", "-h", &url(scratch), "-f"])
        .arg(&file);
    let mut slapd = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("slapd's first answer", || {
        assert_eq!(slapd.try_wait().unwrap(), None, "slapd has ended");
        is_ready(scratch)
    });
    slapd
}

fn is_ready(scratch: &Scratch) -> bool {
    let mut command = Command::new("ldapsearch");
    command.args(["-x", "-LLL", "-H", &url(scratch), "-s", "base", "-b", ""]);
    capture_output(&mut command).code == 0
}
