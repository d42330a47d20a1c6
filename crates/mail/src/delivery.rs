//! One delivery: takes the lock, runs the transaction, and tries again after a conflict.

use crate::account::Recipient;
use crate::failure::Failure;
use crate::index::{self, Line};
use crate::lock::Lock;
use crate::mailbox::{Format, Mailbox};
use crate::message::Message;
use atomdir::client::{Allow, Connection, Settings, reason};
use atomdir::{
    Error, Kind, OpenOptions, StartService, Store, StoreLocation, StoreOptions, Transaction, Trust,
};
use rustix::process::geteuid;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Deliveries to a mailbox wait for each other, so conflicts come only from other programs, or while
/// the mailbox is new.
const TRIES_MAX: u32 = 12;

/// Delivers the message, unless the mailbox's index already has it. Calls `check` right before the
/// commit; if that fails, nothing is delivered.
pub fn deliver(
    mailbox: &Mailbox,
    recipient: &Recipient,
    message: &Message,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::again(
            &format!("cannot deliver to '{}'", mailbox.path.display()),
            error,
        )
    };
    let place = MailboxInStore::find(mailbox).map_err(|error| failed(&error))?;
    let mut tries = 0;
    loop {
        tries += 1;
        let _lock = Lock::take(mailbox).map_err(|errno| failed(&reason(errno)))?;
        let label = format!("mail for {}", recipient.name);
        let begun = place.store.transaction().label(label).begin();
        let transaction = begun.map_err(|error| failed(&error))?;
        let done = Attempt::new(&transaction, mailbox, &place.path)
            .and_then(|attempt| attempt.add(message));
        let done = match done {
            Ok(false) => return Ok(()),
            Ok(true) => {
                check()?;
                transaction.commit().map(|_| ()).map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => return Ok(()),
            Err(error) if error.is_conflict() && tries < TRIES_MAX => pause(tries),
            Err(error) => return Err(failed(&error)),
        }
    }
}

/// Sleeps for a random time, whose upper bound doubles with each try.
fn pause(tries: u32) {
    let random = RandomState::new().build_hasher().finish();
    let longest = Duration::from_millis(1 << tries);
    std::thread::sleep(longest.mul_f64(random as f64 / u64::MAX as f64));
}

/// The store that holds a mailbox, and the mailbox's path relative to the store's root.
struct MailboxInStore {
    store: Store,
    path: PathBuf,
}

impl MailboxInStore {
    fn find(mailbox: &Mailbox) -> Result<MailboxInStore, Error> {
        let (directory, below) = existing_directory(mailbox)?;
        let found = atomdir::client::find_with(&directory, atomdir::Trust::Listed);
        let location = found.map_err(|error| Error::Open(error.into()))?;
        let is_there = location.root.join(&location.start) == directory;
        if location.transaction.is_none() && !is_there {
            let message = format!("'{}' was moved meanwhile", directory.display());
            return Err(Error::other(message));
        }
        let mut options = StoreOptions::new();
        options.start_service(StartService::with_program(command(), &location));
        let store = options.open(&directory)?;
        Ok(MailboxInStore {
            path: match below.as_os_str().is_empty() {
                // `join` with an empty path would add a slash.
                true => location.start,
                false => location.start.join(below),
            },
            store,
        })
    }
}

/// The deepest existing directory on the path to the mailbox, without symbolic links, and the rest
/// of the path. It may be the Maildir itself, because that can be the root of a store.
fn existing_directory(mailbox: &Mailbox) -> Result<(PathBuf, PathBuf), std::io::Error> {
    let path = &mailbox.path;
    let mut above = path.as_path();
    loop {
        above = above.parent().ok_or(std::io::ErrorKind::NotFound)?;
        match above.canonicalize() {
            Ok(directory) => {
                let below = path.strip_prefix(above).unwrap_or(path).to_owned();
                let itself = directory.join(&below);
                let is_directory = || itself.symlink_metadata().is_ok_and(|found| found.is_dir());
                return match mailbox.format == Format::Maildir && is_directory() {
                    true => Ok((itself, PathBuf::new())),
                    false => Ok((directory, below)),
                };
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// The path of the command `atomdir`, which must be installed beside this program.
fn command() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("atomdir")
}

/// If root runs the program, starts the service of a store of root's that admits the recipient: they
/// can open it only while its service runs, and cannot start it. The path is theirs, so it is resolved
/// with their rights. Reads and writes no files of the store but its settings. Ignores errors: opening the
/// store will report them.
pub fn start_service_as_root(mailbox: &Mailbox, recipient: &Recipient) {
    if !geteuid().is_root() {
        return;
    }
    let found = recipient.with_rights(|| {
        let (directory, _) = existing_directory(mailbox).ok()?;
        let found = atomdir::client::find_with(&directory, Trust::Listed).ok()?;
        found.transaction.is_none().then_some(found.root)
    });
    // Root does not trust a user's own store, whose service the user starts, nor a directory on the way
    // that a user could exchange.
    let Some(Ok(location)) = found.flatten().map(|root| StoreLocation::at(&root)) else {
        return;
    };
    let admits = |allow: Allow| recipient.is_in(&allow);
    let allow = Settings::of(&location).and_then(|settings| settings.allow());
    if location.owner == 0 && allow.is_ok_and(admits) {
        let _ = Connection::open(&location, &StartService::with_program(command(), &location));
    }
}

/// One try to deliver, in a transaction.
struct Attempt<'a> {
    transaction: &'a Transaction,
    format: Format,
    path: &'a Path,
    index_path: PathBuf,
    index: Vec<u8>,
    now: u64,
}

impl<'a> Attempt<'a> {
    fn new(transaction: &'a Transaction, mailbox: &Mailbox, path: &'a Path) -> Result<Self, Error> {
        let index_path = mailbox.index(path);
        let index = match is_own_file(transaction, &index_path)? {
            true => transaction.read(&index_path)?,
            false => Vec::new(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Attempt {
            transaction,
            format: mailbox.format,
            path,
            index_path,
            index,
            now: now.unwrap_or_default().as_secs(),
        })
    }

    /// Adds the message to the mailbox and to the index. Returns false if the index already has it.
    fn add(&self, message: &Message) -> Result<bool, Error> {
        let key = message.key.as_deref();
        if key.is_some_and(|key| index::contains(&self.index, key)) {
            return Ok(false);
        }
        let (place, length) = match self.format {
            Format::Mbox => self.add_to_mbox(message)?,
            Format::Maildir => self.add_to_maildir(message)?,
        };
        let line = Line {
            time: self.now,
            key,
            length,
            place: &place,
            message_id: message.message_id.as_deref(),
        };
        if let Some(index) = index::without_old(&self.index, self.now) {
            self.transaction.write(&self.index_path, index)?;
        }
        self.append(&self.index_path, line.to_text().as_bytes())?;
        Ok(true)
    }

    fn add_to_mbox(&self, message: &Message) -> Result<(String, u64), Error> {
        let text = message.to_mbox(self.now);
        let end = self.append(self.path, &text)?;
        let length = text.len() as u64;
        Ok(((end - length).to_string(), length))
    }

    fn add_to_maildir(&self, message: &Message) -> Result<(String, u64), Error> {
        for directory in ["", "tmp", "new", "cur"] {
            let directory = self.path.join(directory);
            match self.transaction.symlink_metadata(&directory) {
                Err(error) if error.is_not_found() => {
                    self.transaction.create_dir_with(&directory, 0o700)?;
                }
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        let length = message.contents().len() as u64;
        let random = RandomState::new().build_hasher().finish();
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let host = host.replace('/', "\\057").replace(':', "\\072");
        let process = std::process::id();
        let name = format!("{}.R{random:016x}P{process}.{host},S={length}", self.now);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let path = self.path.join("new").join(&name);
        let file = self.transaction.open_with(path, &options)?;
        file.write_all_at(message.contents(), 0)?;
        Ok((name, length))
    }

    /// Appends to a file, which must be the recipient's, or creates it. Returns its new length.
    fn append(&self, path: &Path, data: &[u8]) -> Result<u64, Error> {
        is_own_file(self.transaction, path)?;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .append(true)
            .create(true)
            .follow(false)
            .mode(0o600);
        let file = self.transaction.open_with(path, &options)?;
        // Another program may have died while it wrote a message: end its last line.
        if self.format == Format::Mbox && path == self.path {
            let start = file.metadata()?.len.saturating_sub(2);
            let mut end = [0; 2];
            let count = file.read_at(&mut end, start)?;
            let missing: &[u8] = match &end[..count] {
                [] | b"\n" | b"\n\n" => b"",
                [.., b'\n'] => b"\n",
                _ => b"\n\n",
            };
            if !missing.is_empty() {
                file.append(missing)?;
            }
        }
        Ok(file.append(data)?)
    }
}

/// Returns false if there is no such file. Fails if it is not a regular file of the recipient with
/// one name: another user who can write in the directory may have put a pipe there, or a link to
/// another file. Within a transaction, the file cannot change between this check and its opening.
fn is_own_file(transaction: &Transaction, path: &Path) -> Result<bool, Error> {
    let found = match transaction.symlink_metadata(path) {
        Err(error) if error.is_not_found() => return Ok(false),
        found => found?,
    };
    if found.kind != Kind::File || found.links != 1 || found.user != geteuid().as_raw() {
        let message = format!(
            "'{}' must be a regular file with one name that belongs to the recipient",
            path.display()
        );
        return Err(Error::other(message));
    }
    Ok(true)
}
