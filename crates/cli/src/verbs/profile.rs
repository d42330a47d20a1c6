use super::{ExitCode, SUCCESS};
use crate::completion::commands;
use crate::context::{Context, own_program};
use crate::error::Error;
use crate::output::{Painter, Show, json, quoted};
use crate::profiles::{self, Profiles, is_for_runs, masquerade, program, words};
use atomdir::client::profiles::{Profile, ProfileOption, check_program};
use clap::{Args, Subcommand, ValueHint};
use rustix::fs::{Mode, symlink};
use rustix::io::Errno;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Have programs run in transactions of their own whenever they are called
///
/// A store has a profile for each such program: options of `atomdir run`. They take effect where the
/// program is called by a link that `profile link` has made, in a directory that is before the program's
/// own in PATH. So the store's users call it as ever. Outside of the store, and inside of its
/// transactions, it runs as without a profile.
///
/// An option is KEY=VALUE, and KEY is one of these options of `run`: isolation, durability, conflicts,
/// message (the label), view, retry, timeout, max-age, on-error, on-conflict. Or it is files-whole,
/// with the names of files: under a guard, these change whole when the program closes them, or not at
/// all if it is killed, and no link is needed. The profiles are lines of the file `profiles` in the control
/// directory, which can be edited (docs/profiles.md).
#[derive(Debug, Args)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
#[command(after_help = "Examples:
  atomdir profile add make isolation=serializable message='nightly build'
  atomdir profile add /usr/bin/rsync retry=3 on-conflict=abort
  atomdir profile link ~/transactional
  PATH=~/transactional:$PATH
  atomdir profile try make
  atomdir profile add '*' files-whole='*.html,etc/**'")]
pub struct Arguments {
    #[command(subcommand)]
    verb: ProfileVerb,
}

#[derive(Debug, Subcommand)]
enum ProfileVerb {
    /// Give a program a profile; one that it has is replaced
    Add {
        /// An absolute path; or a name: then wherever the program is; or * for all programs
        #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
        program: String,
        /// An option of `run` and its value
        #[arg(value_name = "KEY=VALUE", value_parser = profiles::parse_option)]
        options: Vec<ProfileOption>,
    },
    /// Take a program's profile away
    Remove {
        /// As `list` shows it
        #[arg(value_name = "PROGRAM")]
        program: String,
    },
    /// List the profiles
    List,
    /// Say what would happen if a program were called here
    Try {
        /// Its name, or its path
        #[arg(value_name = "PROGRAM", add = commands("program"))]
        program: OsString,
    },
    /// Make links by which the programs with a profile are called in transactions
    Link {
        /// Where to make them, each under a program's name
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    match &arguments.verb {
        ProfileVerb::Add { program, options } => add(program, options, context)?,
        ProfileVerb::Remove { program } => remove(program, context)?,
        ProfileVerb::List => {
            let store = context.store()?;
            let profiles = Profiles::of(&store)?.all;
            context.output.print(&Listed { profiles })?;
        }
        ProfileVerb::Try { program } => {
            let tried = try_program(program, context)?;
            context.output.print(&tried)?;
        }
        ProfileVerb::Link { directory } => link(directory, context)?,
    }
    Ok(SUCCESS)
}

fn add(program: &str, options: &[ProfileOption], context: &Context) -> Result<(), Error> {
    check_program(program).map_err(Error::usage)?;
    let store = context.store()?;
    let mut profiles = Profiles::of(&store)?;
    profiles.add(program, options)?;
    profiles.write(&store)
}

fn remove(program: &str, context: &Context) -> Result<(), Error> {
    let store = context.store()?;
    let mut profiles = Profiles::of(&store)?;
    match profiles.remove(program) {
        true => profiles.write(&store),
        false => Err(Error::NoProfile {
            program: program.to_owned(),
            store: store.root,
        }),
    }
}

struct ProfileJson<'a>(&'a Profile);

impl Serialize for ProfileJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Profile {
            program,
            line,
            options,
        } = self.0;
        let options = options.iter().map(|one| (&one.key, &one.value));
        let mut fields = serializer.serialize_struct("Profile", 3)?;
        fields.serialize_field("program", program)?;
        fields.serialize_field("line", line)?;
        fields.serialize_field("options", &options.collect::<BTreeMap<_, _>>())?;
        fields.end()
    }
}

fn profile_json<S: Serializer>(
    profile: &Option<Profile>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    profile.as_ref().map(ProfileJson).serialize(serializer)
}

struct Listed {
    profiles: Vec<Profile>,
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profiles: Vec<_> = self.profiles.iter().map(ProfileJson).collect();
        serializer.collect_map([("profiles", profiles)])
    }
}

impl Show for Listed {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for profile in &self.profiles {
            write!(painter, "{}", quoted(profile.program.as_bytes()))?;
            for word in words(profile) {
                write!(painter, " {}", quoted(word.as_bytes()))?;
            }
            writeln!(painter)?;
        }
        Ok(())
    }
}

/// What would happen if a program were called.
#[derive(Serialize)]
struct Tried {
    #[serde(serialize_with = "json::text")]
    name: Vec<u8>,
    #[serde(serialize_with = "json::text")]
    program: Vec<u8>,
    /// The name is that of a link to us.
    linked: bool,
    /// A store's profiles count here.
    in_store: bool,
    #[serde(serialize_with = "profile_json")]
    profile: Option<Profile>,
    transaction: bool,
}

impl Show for Tried {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let name = quoted(&self.name);
        let why = match &self.profile {
            Some(profile) if self.linked => {
                let words = words(profile);
                let words = words.iter().map(|word| quoted(word.as_bytes()) + " ");
                let (words, line) = (words.collect::<String>(), profile.line);
                let program = quoted(&self.program);
                writeln!(
                    painter,
                    "{name} runs in a transaction, by line {line} of the profiles:"
                )?;
                return writeln!(painter, "  atomdir run {words}-- {program}");
            }
            Some(_) => {
                "PATH has no link to atomdir before it: `atomdir profile link DIR` makes one"
            }
            None if self.in_store => "no profile is for it: `atomdir profile add` adds one",
            None => "this is in no store, or in a transaction of it",
        };
        let program = quoted(&self.program);
        writeln!(painter, "{name} is {program}, and runs as ever: {why}")
    }
}

fn try_program(name: &OsStr, context: &Context) -> Result<Tried, Error> {
    let found = program::find(name, &std::env::var_os("PATH").unwrap_or_default());
    let Some(program) = found.program else {
        return Err(Error::NotStarted {
            program: name.into(),
            error: io::ErrorKind::NotFound.into(),
        });
    };
    let store = masquerade::store(context)?;
    let profiles = store.as_ref().map(Profiles::of).transpose()?;
    let profile = profiles.and_then(|profiles| profiles.find(&program).cloned());
    Ok(Tried {
        name: name.as_bytes().to_vec(),
        program: program.into_os_string().into_vec(),
        linked: found.link.is_some(),
        in_store: store.is_some(),
        transaction: found.link.is_some() && profile.is_some(),
        profile,
    })
}

#[derive(Serialize)]
struct Linked {
    #[serde(serialize_with = "json::text")]
    directory: Vec<u8>,
    links: Vec<String>,
}

impl Show for Linked {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let directory = quoted(&self.directory);
        let links = self.links.join(", ");
        writeln!(
            painter,
            "{directory} has links for {links}; put it first in PATH"
        )
    }
}

fn link(directory: &Path, context: &Context) -> Result<(), Error> {
    let store = context.store()?;
    let directory = context.directory().join(directory);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |errno| Error::Write { path, errno }
    };
    match rustix::fs::mkdir(&directory, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(&directory)(errno)),
    }
    let own = own_program();
    let mut links = Vec::new();
    for profile in Profiles::of(&store)?.all.into_iter().filter(is_for_runs) {
        let name = Path::new(&profile.program).file_name().unwrap_or_default();
        let path = directory.join(name);
        match symlink(&own, &path) {
            Ok(()) => {}
            // It is there already.
            Err(Errno::EXIST) if program::is_own(&path) => {}
            Err(errno) => return Err(failed(&path)(errno)),
        }
        links.push(name.to_string_lossy().into_owned());
    }
    context.output.confirm(&Linked {
        directory: directory.into_os_string().into_vec(),
        links,
    })
}
