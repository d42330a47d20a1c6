//! `atomdir-ldap`: a database for OpenLDAP's slapd, which sends it operations through back-sock.
//!
//! Entries are files in the layout of slapd's own back-ldif. Each LDAP operation is one
//! serializable transaction:
//!
//! 1. An operation that has returned success is durable, and one that has failed has changed nothing,
//!    even if processes are killed.
//! 2. The result of a search is sent only after its transaction has been validated, so it shows
//!    one state of the database.
//! 3. Operations run concurrently. One that conflicts with others is tried again.
//!
//! Modules
//! - `server`, `request`: connections from slapd; its requests and the answers to them
//! - `operations`: LDAP's operations, each in one transaction
//! - `tree`, `ldif`: entries as files; the format of these files
//! - `name`, `filter`, `schema`: distinguished names; search filters; attribute types and object
//!   classes
//! - `stamp`, `password`: who changed an entry and when; comparing passwords

mod filter;
mod ldif;
mod name;
mod operations;
mod password;
mod request;
mod schema;
mod server;
mod stamp;
mod tree;

use atomdir::client::reason;
use clap::Parser;
use rustix::fs::{Mode, OFlags, open};
use schema::Schema;
use server::{Database, Root};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serve a directory of LDIF files to slapd, each operation in one transaction
#[derive(Debug, Parser)]
#[command(name = "atomdir-ldap", version)]
#[command(after_help = "slapd.conf:
  moduleload back_sock
  database   sock
  suffix     \"dc=example,dc=org\"
  socketpath /run/slapd/atomdir.sock
  extensions binddn")]
struct Arguments {
    /// The database's directory, in a store
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// The suffix of the names of all entries, as in slapd.conf
    #[arg(long, value_name = "DN")]
    suffix: String,
    /// The socket to create; only this user and root can connect to it
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// A schema file that slapd.conf includes; give all of them, in their order
    #[arg(long, value_name = "FILE")]
    schema: Vec<PathBuf>,
    /// slapd's rootdn, whose password this program checks, since slapd does not
    #[arg(long, value_name = "DN", requires = "root_password_file")]
    root_dn: Option<String>,
    /// A file whose first line is the password of --root-dn, plain or as slappasswd prints it
    #[arg(long, value_name = "FILE", requires = "root_dn")]
    root_password_file: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "atomdir-ldap: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let mut schema = Schema::new();
    for file in &arguments.schema {
        schema.add(&read(file)?);
    }
    let root = match (&arguments.root_dn, &arguments.root_password_file) {
        (Some(name), Some(file)) => {
            let password = read(file)?;
            let password = password.lines().next().unwrap_or_default();
            if password.is_empty() {
                let file = file.display();
                return Err(format!(
                    "the first line of '{file}' must be the password of --root-dn"
                )
                .into());
            }
            Some(Root::new(name, password, &schema)?)
        }
        _ => None,
    };
    let database = Database::open(&arguments.directory, &arguments.suffix, schema, root)?;
    server::serve(&arguments.socket, &database)
}

fn read(path: &Path) -> Result<String, Error> {
    let failed = |errno| format!("cannot read '{}': {}", path.display(), reason(errno));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(failed)?;
    let mut text = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match rustix::io::read(&file, &mut buffer).map_err(failed)? {
            0 => {
                let text = String::from_utf8(text);
                return text.map_err(|_| format!("'{}' is not UTF-8", path.display()).into());
            }
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
}
