//! Connections from slapd, which makes a new one for each operation.

use crate::name::Name;
use crate::operations::{self, parse_name};
use crate::password;
use crate::request::{Answer, Request};
use crate::schema::Schema;
use crate::stamp::Stamp;
use crate::tree::{Outcome, Tree};
use atomdir::client::io_reason;
use atomdir::{Isolation, Store, Transaction};
use rustix::fs::{FileType, Mode};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Simple authentication, that is by a password.
const METHOD_SIMPLE: i64 = 128;

pub struct Database {
    store: Store,
    /// The database's directory, relative to the store's root.
    directory: PathBuf,
    suffix: Name,
    schema: Schema,
    root: Option<Root>,
}

/// The administrator (slapd's rootdn). slapd knows the name, this program checks the password.
pub struct Root {
    normalized: String,
    password: Vec<u8>,
}

impl Root {
    pub fn new(name: &str, password: &str, schema: &Schema) -> Result<Root, String> {
        let name = Name::parse(name)
            .ok_or_else(|| format!("--root-dn is not a distinguished name: '{name}'"))?;
        Ok(Root {
            normalized: name.normalized(schema),
            password: password.as_bytes().to_vec(),
        })
    }
}

impl Database {
    pub fn open(
        directory: &Path,
        suffix: &str,
        schema: Schema,
        root: Option<Root>,
    ) -> Result<Database, crate::Error> {
        let name = Name::parse(suffix).filter(|name| !name.parts.is_empty());
        let suffix =
            name.ok_or_else(|| format!("--suffix is not a distinguished name: '{suffix}'"))?;
        let failed = |error: &dyn std::fmt::Display| {
            format!("cannot open '{}': {error}", directory.display())
        };
        let whole = directory.canonicalize();
        let whole = whole.map_err(|error| failed(&io_reason(&error)))?;
        let store = Store::open(&whole).map_err(|error| failed(&error))?;
        let root_of_store = store
            .root()
            .canonicalize()
            .map_err(|error| failed(&io_reason(&error)))?;
        let within = whole
            .strip_prefix(root_of_store)
            .map_err(|error| failed(&error))?;
        Ok(Database {
            directory: within.to_owned(),
            store,
            suffix,
            schema,
            root,
        })
    }

    /// Runs an operation in one transaction, and commits it. An operation that ends with an answer,
    /// such as "no such object", is validated as well, so that the answer is right.
    fn run<T>(&self, body: impl Fn(&Tree) -> Outcome<T>) -> Result<T, Answer> {
        let options = self.store.transaction().isolation(Isolation::Serializable);
        let done = options.run(|transaction: &mut Transaction| {
            body(&Tree {
                transaction,
                schema: &self.schema,
                directory: &self.directory,
                suffix: &self.suffix,
            })
        });
        done.unwrap_or_else(|error| {
            let code = if error.is_conflict() {
                Answer::BUSY
            } else {
                Answer::OTHER
            };
            Err(Answer::new(code, error.to_string()))
        })
    }

    fn bind(&self, request: &Request) -> Result<(), Answer> {
        let name = request.value("dn").and_then(|text| parse_name(&text))?;
        if request.number("method")? != METHOD_SIMPLE {
            return Err(Answer::new(
                Answer::AUTH_METHOD_NOT_SUPPORTED,
                "only simple authentication is supported",
            ));
        }
        let given = request.value("cred")?;
        if let Some(root) = &self.root
            && name.normalized(&self.schema) == root.normalized
        {
            return match password::is_one_of(
                given.as_bytes(),
                [root.password.as_slice()].into_iter(),
            ) {
                true => Ok(()),
                false => Err(Answer::new(Answer::INVALID_CREDENTIALS, "")),
            };
        }
        self.run(|tree| operations::bind(tree, &name, given.as_bytes()))
    }

    /// Carries the request out. Returns the entries that a search found, as LDIF, and the result.
    fn answer(&self, request: &Request) -> (Vec<u8>, Answer) {
        let stamp = Stamp::new(request.client());
        let done = match request.verb.as_str() {
            "SEARCH" => {
                return self
                    .run(|tree| operations::search(tree, request))
                    .unwrap_or_else(|answer| (Vec::new(), answer));
            }
            "COMPARE" => match self.run(|tree| operations::compare(tree, request)) {
                Ok(answer) | Err(answer) => Err(answer),
            },
            "ADD" => self.run(|tree| operations::add(tree, request, &stamp)),
            "DELETE" => self.run(|tree| operations::delete(tree, request)),
            "MODIFY" => self.run(|tree| operations::modify(tree, request, &stamp)),
            "MODRDN" => self.run(|tree| operations::rename(tree, request, &stamp)),
            "BIND" => self.bind(request),
            other => Err(Answer::new(
                Answer::UNWILLING_TO_PERFORM,
                format!("the operation {other} is not supported"),
            )),
        };
        (
            Vec::new(),
            done.map_or_else(|answer| answer, |()| Answer::success()),
        )
    }

    fn serve(&self, mut connection: UnixStream) -> io::Result<()> {
        let (entries, answer) = match Request::read(&mut connection) {
            Ok(request) if request.verb == "UNBIND" => return Ok(()),
            Ok(request) => self.answer(&request),
            Err(answer) => (Vec::new(), answer),
        };
        connection.write_all(&entries)?;
        answer.write(&mut connection)
    }
}

/// Serves until the process is killed. It may be killed at any time without harm.
pub fn serve(socket: &Path, database: &Database) -> Result<(), crate::Error> {
    let failed = |error: io::Error| {
        let reason = io_reason(&error);
        format!("cannot listen on '{}': {reason}", socket.display())
    };
    let listener = listen(socket).map_err(failed)?;
    // The program that started this one may have closed the pipe. The socket works without it.
    let _ = writeln!(io::stdout(), "ready");
    std::thread::scope(|scope| {
        for connection in listener.incoming() {
            // slapd's threads limit the number of connections; it has 16 by default.
            let connection = connection.map_err(failed)?;
            scope.spawn(move || {
                if let Err(error) = database.serve(connection) {
                    let reason = io_reason(&error);
                    let _ = writeln!(io::stderr(), "atomdir-ldap: cannot answer slapd: {reason}");
                }
            });
        }
        Ok(())
    })
}

/// Creates the socket. Replaces one that a killed server has left.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(socket).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server is listening on it",
        ));
    }
    let found = rustix::fs::lstat(socket);
    if found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket) {
        rustix::fs::unlink(socket)?;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(before);
    listener
}
