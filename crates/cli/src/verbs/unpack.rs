use super::{ExitCode, SUCCESS, run as verb_run};
use crate::arguments::number;
use crate::attempt;
use crate::context::{Context, own_program};
use crate::error::Error;
use crate::output::{Output, ProgressLine, quoted};
use crate::unpacking::{Archive, Entry, Unpacker};
use atomdir::Durability;
use atomdir::client::{BeginOptions, Others, ViewChoice};
use clap::{Args, Parser, ValueHint};
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, openat};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Unpack an archive in one transaction, or each file in one of its own
///
/// The archive is a tar file, which may be compressed by gzip, xz or zstd, or a zip file. Its
/// contents appear in the current directory, or in DIR, all at once; if anything fails or is killed,
/// nothing has happened. With --each there are no half files, and what can be unpacked is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir unpack ~/site.tar.gz
  atomdir unpack -C /srv/site --each /tmp/images.zip
  curl https://example.org/site.tar.zst | atomdir unpack -C /srv/site -")]
pub struct Arguments {
    /// Commit each file by itself
    #[arg(long)]
    each: bool,
    /// After a conflict begin anew and unpack again, up to N times
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = number::<u32>, conflicts_with = "each")]
    retry: u32,
    /// Unpack standard input from this byte on here, without a transaction: what runs in one
    #[arg(long, hide = true)]
    here: Option<u64>,
    /// The archive; - is standard input
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    archive: PathBuf,
}

/// `run`, as if it had been called.
#[derive(Debug, Parser)]
struct Run {
    #[command(flatten)]
    run: verb_run::Arguments,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if let Some(start) = arguments.here {
        return here(start, &context.output);
    }
    let archive = open(arguments)?;
    if arguments.each {
        return each(context, archive);
    }
    let position = rustix::fs::seek(&archive, SeekFrom::Current(0));
    if position.is_err() && arguments.retry > 0 {
        let message = "--retry needs an archive that can be read twice, and not a pipe";
        return Err(Error::usage(message));
    }
    let start = position.unwrap_or(0);
    // The command in the transaction reads the archive from its standard input.
    rustix::stdio::dup2_stdin(&archive).map_err(|errno| failed(&errno.into()))?;
    let mut label = OsString::from("--message=unpack ");
    label.push(&arguments.archive);
    let quiet = context.output.is_quiet().then(|| "--quiet".into());
    let words = [
        "run".into(),
        label,
        format!("--retry={}", arguments.retry).into(),
        "--".into(),
        own_program().into(),
    ];
    let words = words.into_iter().chain(quiet).chain([
        "unpack".into(),
        format!("--here={start}").into(),
        "-".into(),
    ]);
    let run = Run::try_parse_from::<_, OsString>(words);
    let run = run.map_err(|error| Error::usage(error.to_string()))?;
    verb_run::run(&run.run, context)
}

fn open(arguments: &Arguments) -> Result<OwnedFd, Error> {
    let path = &arguments.archive;
    if path.as_os_str() == "-" {
        let own = rustix::stdio::stdin();
        return rustix::io::fcntl_dupfd_cloexec(own, 3).map_err(|errno| failed(&errno.into()));
    }
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        Error::Unpack {
            message: format!(
                "cannot open '{}': {}",
                path.display(),
                atomdir::client::reason(errno)
            ),
        }
    })
}

fn failed(error: &io::Error) -> Error {
    Error::Unpack {
        message: format!(
            "cannot unpack the archive: {}",
            atomdir::client::io_reason(error)
        ),
    }
}

fn named(entry: &Entry<'_>, error: &io::Error) -> io::Error {
    let text = format!(
        "'{}': {}",
        quoted(&entry.path),
        atomdir::client::io_reason(error)
    );
    io::Error::new(error.kind(), text)
}

/// How much of an archive has been read, if it is a file.
struct ReadSoFar {
    archive: OwnedFd,
    length: u64,
    line: ProgressLine,
}

impl ReadSoFar {
    fn of(archive: &OwnedFd, output: &Output) -> io::Result<ReadSoFar> {
        let length = rustix::fs::fstat(archive)?.st_size;
        Ok(ReadSoFar {
            archive: archive.try_clone()?,
            length: u64::try_from(length).unwrap_or(0),
            line: output.progress("unpacking bytes"),
        })
    }

    fn show(&mut self) {
        // Both descriptors have the same position.
        if self.length > 0
            && let Ok(position) = rustix::fs::seek(&self.archive, SeekFrom::Current(0))
        {
            self.line.update(position.min(self.length), self.length);
        }
    }
}

/// Runs in a view.
fn here(start: u64, output: &Output) -> Result<ExitCode, Error> {
    let stdin = rustix::stdio::stdin();
    // An earlier try may have read it.
    let _ = rustix::fs::seek(stdin, SeekFrom::Start(start));
    let archive =
        rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(|errno| failed(&errno.into()))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, ".", flags, Mode::empty()).map_err(|errno| failed(&errno.into()))?;
    let mut unpacker = Unpacker::new();
    let mut so_far = ReadSoFar::of(&archive, output).map_err(|error| failed(&error))?;
    let mut create = |entry: &mut Entry<'_>| {
        so_far.show();
        let created = unpacker.create(root.as_fd(), entry);
        created.map_err(|error| named(entry, &error))
    };
    let read = Archive::new(archive).read(&mut create);
    drop(so_far);
    read.and_then(|()| unpacker.finish(root.as_fd()))
        .map_err(|error| failed(&error))?;
    Ok(SUCCESS)
}

/// Commits each entry by itself, lazily, and makes all of them durable at the end.
fn each(context: &Context, archive: OwnedFd) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let current = context.current(&connected);
    let mut unpacker = Unpacker::new();
    let mut broken = None;
    let mut refused: u64 = 0;
    let mut so_far = ReadSoFar::of(&archive, &context.output).map_err(|error| failed(&error))?;
    let mut in_transaction =
        |label: &[u8], change: &mut Change<'_>| -> Result<io::Result<()>, Error> {
            let options = BeginOptions {
                durability: Durability::Lazy,
                label: [b"unpack ", label].concat(),
                view: ViewChoice::Exact,
                outer: current,
                ..BeginOptions::default()
            };
            let (transaction, _) = attempt::begin(context, &mut connected, &options)?;
            let start = connected.start.clone();
            let changed = transaction.root().and_then(|root| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let path = if start.as_os_str().is_empty() {
                    ".".into()
                } else {
                    start
                };
                openat(root, &path, flags, Mode::empty())
            });
            let changed = changed
                .map_err(io::Error::from)
                .and_then(|root| change(root.as_fd()));
            let connection = &mut connected.connection;
            if changed.is_err() {
                connection.abort(transaction.id)?;
                return Ok(changed);
            }
            match attempt::commit(context, connection, transaction.id, Others::Refuse) {
                Ok(_) => Ok(Ok(())),
                Err(error) if attempt::is_conflict(&error) => {
                    connection.abort(transaction.id)?;
                    Ok(Err(io::Error::other(error.to_string())))
                }
                Err(error) => Err(error),
            }
        };
    let read = Archive::new(archive).read(&mut |entry: &mut Entry<'_>| {
        let label = entry.path.clone();
        so_far.show();
        match in_transaction(&label, &mut |root| unpacker.create(root, entry)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                refused += 1;
                let refusal = named(entry, &error);
                let _ = writeln!(io::stderr(), "atomdir unpack: {refusal}");
                Ok(())
            }
            Err(error) => {
                broken = Some(error);
                Err(io::ErrorKind::Interrupted.into())
            }
        }
    });
    drop(so_far);
    if let Some(error) = broken {
        return Err(error);
    }
    let finished = in_transaction(b"directories", &mut |root| unpacker.finish(root))?;
    connected.connection.sync()?;
    read.and(finished).map_err(|error| failed(&error))?;
    match refused {
        0 => Ok(SUCCESS),
        1 => Err(Error::Unpack {
            message: "one entry was not unpacked".to_owned(),
        }),
        count => Err(Error::Unpack {
            message: format!("{count} entries were not unpacked"),
        }),
    }
}

type Change<'a> = dyn FnMut(BorrowedFd<'_>) -> io::Result<()> + 'a;
