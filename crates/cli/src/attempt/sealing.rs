//! Options that seal a command off.

use crate::context::Connected;
use crate::enter::{Confinement, NAMED_MAX, Private, Sealing};
use crate::error::Error;
use atomdir::client::{Account, Transaction, io_reason};
use clap::{Args, ValueHint};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where programs make temporary files and shared memory.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Variables by which programs find another place for these.
const OF_TEMPORARY: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];
/// The variables that `--env` always passes: without them few programs work as their users expect.
const ALWAYS_PASSED: [&str; 8] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ",
];
/// Those of locale(7).
const LOCALE_PREFIX: &[u8] = b"LC_";

/// Options of the verbs that begin a transaction for one command.
#[derive(Debug, Args)]
pub struct SealArguments {
    /// Keep the command away from the service and from the store itself, and end
    /// all that it has started when it ends; --ask, --dry-run, --hide, --env and
    /// --no-network imply this
    #[arg(long)]
    pub sealed: bool,
    /// Seal the command, let it change files nowhere but in the view, and give it
    /// an empty home and a /tmp of its own
    #[arg(long)]
    pub confine: bool,
    /// With --confine: let it see and change files here as well
    #[arg(long, value_name = "PATH", requires = "confine", value_hint = ValueHint::AnyPath)]
    pub write: Vec<PathBuf>,
    /// With --confine: let it see files here, in the home or in /tmp
    #[arg(long, value_name = "PATH", requires = "confine", value_hint = ValueHint::AnyPath)]
    pub read: Vec<PathBuf>,
    /// Let it find nothing here, in the store or outside
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub hide: Vec<PathBuf>,
    /// Let it reach no network
    #[arg(long)]
    pub no_network: bool,
    /// Pass only these environment variables, beside a few such as PATH and HOME;
    /// NAME=VALUE sets one. Separate several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub env: Vec<OsString>,
}

impl SealArguments {
    /// `implied` says whether the changes will be shown before the commit.
    pub fn is_wanted(&self, implied: bool) -> bool {
        let hides = !self.hide.is_empty() || !self.env.is_empty() || self.no_network;
        self.sealed || self.confine || hides || implied
    }

    pub fn sealing(
        &self,
        connected: &Connected,
        transaction: &Transaction,
    ) -> Result<Sealing, Error> {
        // A view's root is DIRECTORY/MOUNT/TRANSACTION/NAME: MOUNT has the store's
        // views, and DIRECTORY also the sockets of services.
        let views = transaction.view_path.ancestors().nth(3);
        let control = connected.control.clone();
        let confinement = match self.confine {
            true => Some(self.confinement()?),
            false => None,
        };
        let hidden = places("--hide", &self.hide)?;
        if let Some(place) = hidden
            .iter()
            .find(|place| connected.root.starts_with(place))
        {
            let message = format!("--hide '{}' would hide the store", place.display());
            return Err(Error::usage(message));
        }
        Ok(Sealing {
            views: views.unwrap_or(&transaction.view_path).to_owned(),
            control: control.filter(|control| !control.starts_with(&connected.root)),
            environment: self.environment(confinement.as_ref()),
            confinement,
            hidden,
            has_network: !self.no_network,
        })
    }

    fn confinement(&self) -> Result<Confinement, Error> {
        let private = |is_writable| move |path| Private { path, is_writable };
        let temporary = TEMPORARY.iter().map(PathBuf::from);
        let temporary = temporary.filter_map(|path| path.canonicalize().ok());
        Ok(Confinement {
            writable: places("--write", &self.write)?,
            readable: places("--read", &self.read)?,
            links: links_to(self.write.iter().chain(&self.read)),
            private: temporary
                .map(private(true))
                .chain(homes().into_iter().map(private(false)))
                .collect(),
        })
    }

    /// The command's environment, if it is not ours.
    fn environment(&self, confinement: Option<&Confinement>) -> Option<Vec<(OsString, OsString)>> {
        if self.env.is_empty() && confinement.is_none() {
            return None;
        }
        let is_private = |value: &OsStr| {
            let place = Path::new(value);
            let is_there = |confinement: &Confinement| {
                let writable = confinement.writable.iter();
                let own = confinement.private.iter().filter(|one| one.is_writable);
                writable
                    .chain(own.map(|one| &one.path))
                    .any(|one| place == one)
            };
            confinement.is_none_or(is_there)
        };
        let mut passed: Vec<(OsString, OsString)> = std::env::vars_os()
            .filter(|(name, _)| self.env.is_empty() || self.passes(name))
            // A directory that the command cannot write is no place for temporary files.
            .filter(|(name, value)| {
                !OF_TEMPORARY.iter().any(|one| name == one) || is_private(value)
            })
            .collect();
        passed.extend(self.env.iter().filter_map(|one| {
            let bytes = one.as_bytes();
            let at = bytes.iter().position(|byte| *byte == b'=')?;
            let part = |bytes| OsStr::from_bytes(bytes).to_owned();
            Some((part(&bytes[..at]), part(&bytes[at + 1..])))
        }));
        Some(passed)
    }

    fn passes(&self, name: &OsStr) -> bool {
        ALWAYS_PASSED.iter().any(|one| name == *one)
            || name.as_bytes().starts_with(LOCALE_PREFIX)
            || self.env.iter().any(|one| one == name)
    }
}

/// The user's home, by the system's database and by the environment, and the directory of the
/// sockets on which their programs listen. Root could read the homes of all.
fn homes() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let account = Account::of(user).map(|account| account.home);
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let mut homes: Vec<PathBuf> = account
        .into_iter()
        .chain(variable("HOME"))
        .chain(variable("XDG_RUNTIME_DIR"))
        .chain([PathBuf::from(format!("/run/user/{user}"))])
        .collect();
    if user == 0 {
        homes.extend(["/root", "/home", "/run/user"].map(PathBuf::from));
    }
    homes.retain(|path| path.is_absolute());
    homes
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect()
}

/// The named places, with symbolic links resolved.
fn places(option: &str, named: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if named.len() > NAMED_MAX {
        let message = format!("{option} can be given {NAMED_MAX} times at most");
        return Err(Error::usage(message));
    }
    let places = named.iter().map(|path| {
        path.canonicalize().map_err(|error| {
            let why = io_reason(&error);
            Error::usage(format!("{option} '{}': {why}", path.display()))
        })
    });
    places.collect()
}

/// The symbolic links on the way to these places, which are there.
fn links_to<'a>(named: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let mut links = Vec::new();
    for place in named {
        if let Ok(place) = std::path::absolute(place) {
            add_links(&place, &mut links);
        }
    }
    links
}

fn add_links(path: &Path, links: &mut Vec<PathBuf>) {
    let Some(above) = path.parent() else {
        return;
    };
    add_links(above, links);
    let (Some(name), Ok(above)) = (path.file_name(), above.canonicalize()) else {
        return;
    };
    let here = above.join(name);
    if !links.contains(&here)
        && let Ok(target) = here.read_link()
    {
        links.push(here);
        add_links(&above.join(target), links);
    }
}
