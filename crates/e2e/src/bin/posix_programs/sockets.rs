//! Unix sockets: one is bound to a name, another process connects by that name, and the name
//! stays behind.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use crate::check::{Outcome, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "sockets";

fn prepare() -> Outcome {
    fs::create_dir("run")?;
    drop(UnixListener::bind("run/left by another")?);
    Ok(())
}

fn run() -> Outcome {
    stream()?;
    datagram()?;
    nobody_listens()
}

fn stream() -> Outcome {
    let listener = UnixListener::bind("run/stream")?;
    same(
        "its type",
        fs::symlink_metadata("run/stream")?.file_type().is_socket(),
        true,
    )?;
    let again = UnixListener::bind("run/stream")
        .map(drop)
        .map_err(|error| error.kind());
    same("bound again", again, Err(ErrorKind::AddrInUse))?;
    // A socket is found by its object, even under a new name.
    fs::rename("run/stream", "run/moved")?;
    fs::hard_link("run/moved", "run/linked")?;
    for name in ["run/moved", "run/linked"] {
        // The second process inherits the listener as its standard input.
        let mut answer = process::command(NAME, "answer", &[])?;
        let answer = answer.stdin(OwnedFd::from(listener.try_clone()?)).spawn()?;
        let ask = process::spawn(NAME, "ask", &[name])?;
        process::finish_all(vec![answer, ask])?;
    }
    Ok(())
}

fn datagram() -> Outcome {
    let receiver = UnixDatagram::bind("run/datagram")?;
    process::call(NAME, "send", &[])?;
    let mut buffer = [0; 64];
    let length = receiver.recv(&mut buffer)?;
    same("received", &buffer[..length], b"one datagram".as_slice())?;
    drop(receiver);
    Ok(fs::remove_file("run/datagram")?)
}

fn nobody_listens() -> Outcome {
    for (name, expected) in [
        ("run/moved", ErrorKind::ConnectionRefused),
        ("run/left by another", ErrorKind::ConnectionRefused),
        ("run/stream", ErrorKind::NotFound),
    ] {
        let connected = UnixStream::connect(name)
            .map(drop)
            .map_err(|error| error.kind());
        same(name, connected, Err(expected))?;
    }
    Ok(())
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    match (role, arguments) {
        ("ask", [name]) => {
            let mut stream = UnixStream::connect(name)?;
            stream.write_all(b"is anybody there?")?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            same("answer", answer.as_str(), "IS ANYBODY THERE?")
        }
        ("answer", []) => {
            let listener = UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            let (mut peer, _) = listener.accept()?;
            let mut question = String::new();
            peer.read_to_string(&mut question)?;
            Ok(peer.write_all(question.to_uppercase().as_bytes())?)
        }
        ("send", []) => {
            UnixDatagram::unbound()?.send_to(b"one datagram", "run/datagram")?;
            Ok(())
        }
        _ => process::none(role, arguments),
    }
}
