//! LDAP entries: Debian's slapd over `atomdir-ldap`, compared with slapd over its own back-ldif. Both
//! keep the same files; back-ldif flushes none of them. The clients are the programs of ldap-utils.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::measure::{Measured, Outcome, Side, in_turns};
use crate::programs::{clear, make_directory, output};
use crate::report::Row;

/// How many entries are added at a scale of 1, as in the paper.
const ENTRIES: u64 = 1000;
const ENTRY_BYTES: usize = 512;
/// Few, since each search reads all entries.
const SEARCHES: u64 = 60;
/// How many entries are added while others search, as in the paper.
const MIXED_ENTRIES: u64 = 100;

const SUFFIX: &str = "dc=example,dc=org";
const ROOT: &str = "cn=admin,dc=example,dc=org";
const PASSWORD: &str = "secret";
const SCHEMA: &str = "/etc/ldap/schema/core.schema";

const STEPS: [&str; 4] = ["add", "search", "modify", "add and search"];

pub fn entries(bench: &Bench) -> Result<Vec<Row>> {
    let ours = bench.program.with_file_name("atomdir-ldap");
    let needed = [
        (ours.as_path(), "cargo build --release -p atomdir-ldap"),
        ("/usr/sbin/slapd".as_ref(), "apt install slapd"),
        ("/usr/bin/ldapmodify".as_ref(), "apt install ldap-utils"),
    ];
    if let Some((_, install)) = needed.iter().find(|(program, _)| !program.is_file()) {
        eprintln!("SKIPPED entries: {install}");
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for clients in [1, 6] {
        let measured = in_turns(bench.rounds, &[Side::BackLdif, Side::Tool], |side| {
            once(bench, side, clients)
        })?;
        rows.extend(STEPS.iter().map(|step| {
            let name = match clients {
                1 => format!("{step}, one client"),
                _ => format!("{step}, {clients} clients"),
            };
            row(&name, &measured, step)
        }));
    }
    Ok(rows)
}

fn row(name: &str, measured: &Measured, step: &str) -> Row {
    Row::new(name, measured.step(step)).reference(Side::BackLdif)
}

/// Starts a server, and runs all steps, one after the other.
fn once(bench: &Bench, side: Side, clients: u64) -> Result<Outcome> {
    let (entries, searches) = (bench.scaled(ENTRIES), bench.scaled(SEARCHES));
    let mixed = bench.scaled(MIXED_ENTRIES);
    let server = Server::start(bench, side)?;
    let suffix = format!(
        "dn: {SUFFIX}\nchangetype: add\nobjectClass: dcObject\n\
         objectClass: organization\ndc: example\no: example\n"
    );
    server.change("suffix", &suffix)?;
    // The part of the work that a client does.
    let share = |all: u64, client: u64| (0..all).filter(move |number| number % clients == client);
    let mut steps = Vec::new();
    let mut step = |name: &str, clients: u64, action: &(dyn Fn(u64) -> Result<()> + Sync)| {
        bench.rest()?;
        let began = Instant::now();
        at_once(clients, action)?;
        steps.push((name.to_owned(), began.elapsed()));
        Ok::<(), Error>(())
    };
    step("add", clients, &|client| {
        server.change(
            &format!("add-{client}"),
            &additions("added", share(entries, client)),
        )
    })?;
    step("search", clients, &|client| {
        server.search(client, share(searches, client))
    })?;
    step("modify", clients, &|client| {
        server.change(
            &format!("modify-{client}"),
            &changes("added", share(entries, client)),
        )
    })?;
    server.expect("(sn=changed)", entries)?;
    step(
        "add and search",
        2 * clients,
        &|client| match client.checked_sub(clients) {
            None => server.change(
                &format!("mix-{client}"),
                &additions("mixed", share(mixed, client)),
            ),
            Some(searcher) => server.search(client, share(searches, searcher)),
        },
    )?;
    server.expect("(sn=mixed)", mixed)?;
    let took = steps.iter().map(|(_, took)| *took).sum::<Duration>();
    Ok(Outcome {
        whole: took.into(),
        steps,
    })
}

fn at_once(clients: u64, action: &(dyn Fn(u64) -> Result<()> + Sync)) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || action(client)))
            .collect();
        running.into_iter().try_for_each(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn additions(surname: &str, numbers: impl Iterator<Item = u64>) -> String {
    let rest = "x".repeat(ENTRY_BYTES);
    numbers
        .map(|number| {
            format!(
                "dn: cn={surname} {number},{SUFFIX}\nchangetype: add\nobjectClass: person\n\
                 cn: {surname} {number}\nsn: {surname}\ndescription: {rest}\n\n"
            )
        })
        .collect()
}

fn changes(surname: &str, numbers: impl Iterator<Item = u64>) -> String {
    numbers
        .map(|number| {
            format!(
                "dn: cn={surname} {number},{SUFFIX}\nchangetype: modify\nreplace: sn\n\
                 sn: changed\n\n"
            )
        })
        .collect()
}

/// A slapd, with its `atomdir-ldap` if it uses one. Dropping it kills both.
struct Server {
    directory: PathBuf,
    processes: Vec<Child>,
}

impl Server {
    fn start(bench: &Bench, side: Side) -> Result<Server> {
        let directory = bench.directory.join(format!("entries-{side}"));
        clear(&directory)?;
        make_directory(&directory.join("db"))?;
        let mut server = Server {
            directory,
            processes: Vec::new(),
        };
        if side == Side::Tool {
            server.start_ours(bench)?;
        }
        server.start_slapd(side)?;
        Ok(server)
    }

    fn start_ours(&mut self, bench: &Bench) -> Result<()> {
        output(
            Command::new(&bench.program)
                .arg("init")
                .arg(self.path("db")),
        )?;
        self.write("password", PASSWORD)?;
        let mut command = Command::new(bench.program.with_file_name("atomdir-ldap"));
        command.arg("--directory").arg(self.path("db"));
        command.arg("--socket").arg(self.path("socket"));
        command.args(["--suffix", SUFFIX, "--schema", SCHEMA, "--root-dn", ROOT]);
        command
            .arg("--root-password-file")
            .arg(self.path("password"));
        let mut ready = String::new();
        let child = self.keep(command.stdout(Stdio::piped()))?;
        if let Some(printed) = child.stdout.take() {
            let read = BufReader::new(printed).read_line(&mut ready);
            read.describe("read what is printed by", "atomdir-ldap".as_ref())?;
        }
        Ok(())
    }

    fn start_slapd(&mut self, side: Side) -> Result<()> {
        let path = self.directory.display();
        let names = format!("suffix \"{SUFFIX}\"\nrootdn \"{ROOT}\"\n");
        let database = match side {
            Side::BackLdif => {
                format!("database ldif\n{names}rootpw {PASSWORD}\ndirectory {path}/db\n")
            }
            _ => format!(
                "modulepath /usr/lib/ldap\nmoduleload back_sock\ndatabase sock\n{names}\
                 socketpath {path}/socket\nextensions binddn\n"
            ),
        };
        let files = format!("pidfile {path}/pid\nargsfile {path}/arguments\n");
        // Let searches find all entries, and write no log, which would slow both sides down.
        let limits = "sizelimit unlimited\nloglevel 0\n";
        let text = format!("include {SCHEMA}\n{files}{limits}{database}");
        self.write("slapd.conf", &text)?;
        let mut command = Command::new("/usr/sbin/slapd");
        command
            .args(["-d", "0", "-h", &self.url(), "-f"])
            .arg(self.path("slapd.conf"));
        self.keep(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        loop {
            let mut question = self.client("ldapsearch");
            let answer = output(question.args(["-s", "base", "-b", ""]));
            let ended = match self.processes.last_mut() {
                Some(slapd) => slapd.try_wait().describe("await", "slapd".as_ref())?,
                None => None,
            };
            match (answer, ended) {
                (Ok(_), _) => return Ok(()),
                (Err(error), Some(_)) => return Err(error),
                (Err(_), None) => std::thread::yield_now(),
            }
        }
    }

    fn keep(&mut self, command: &mut Command) -> Result<&mut Child> {
        let program = PathBuf::from(command.get_program());
        let child = command.stdin(Stdio::null()).spawn();
        let index = self.processes.len();
        self.processes.push(child.describe("start", &program)?);
        Ok(&mut self.processes[index])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).describe("write", &path)?;
        Ok(path)
    }

    fn url(&self) -> String {
        let socket = self.path("ldapi").display().to_string();
        format!("ldapi://{}", socket.replace('/', "%2F"))
    }

    /// A command that runs a program of ldap-utils as the administrator.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-x", "-H", &self.url(), "-D", ROOT, "-w", PASSWORD]);
        command
    }

    fn change(&self, name: &str, ldif: &str) -> Result<()> {
        let file = self.write(name, ldif)?;
        output(self.client("ldapmodify").arg("-f").arg(file)).map(|_| ())
    }

    /// Searches for one entry after the other, each time in the whole database.
    fn search(&self, client: u64, numbers: impl Iterator<Item = u64>) -> Result<()> {
        let numbers: Vec<String> = numbers.map(|number| format!("{number}\n")).collect();
        let file = self.write(&format!("searches-{client}"), &numbers.concat())?;
        let mut command = self.client("ldapsearch");
        command.args(["-LLL", "-b", SUFFIX, "-f"]).arg(file);
        let found = output(command.arg("(cn=added %s)"))?;
        expect(numbers.len() as u64, found.matches("dn: ").count() as u64)
    }

    /// Checks that a search finds so many entries.
    fn expect(&self, filter: &str, expected: u64) -> Result<()> {
        let mut command = self.client("ldapsearch");
        let found = output(command.args(["-LLL", "-b", SUFFIX, filter, "1.1"]))?;
        expect(expected, found.matches("dn: ").count() as u64)
    }
}

fn expect(expected: u64, found: u64) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(Error::Entries { expected, found }),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            // Ignore errors: the process may have ended, or an error is being reported already.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = clear(&self.directory);
    }
}
