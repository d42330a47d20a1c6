//! A stranger's service that answers whatever it likes, and how a client reacts.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use atomdir_protocol::handshake::{self, Verdict};
use atomdir_protocol::{Answer, Begun, Layers, Reply, Request, TransactionId, frame};
use atomdir_testing::exit_code::{INTERNAL, NOT_PERMITTED};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Outcome, Scratch, User, atomdir_in, binary, capture_output, look, shell};
use rustix::io::IoSlice;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// What the fake service answers.
#[derive(Clone)]
pub struct Lie {
    pub view_path: PathBuf,
    /// The directory that it sends as the view's root.
    pub brought: Option<PathBuf>,
    pub layers: Option<PathBuf>,
    /// A mount that it sends to a client that attaches.
    pub mount: Option<Arc<OwnedFd>>,
}

/// Listens as `user` in a control directory of theirs, and ends with the test.
pub struct FakeService {
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl FakeService {
    pub fn start(user: &User, root: &Path, lie: Lie) -> FakeService {
        let control = root.join(".atomdir");
        fs::create_dir_all(&control).expect("made");
        chown(&control, Some(user.uid), Some(user.gid)).expect("given");
        let socket = control.join("socket");
        let _ = fs::remove_file(&socket);
        let (uid, path) = (user.uid, socket.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (root, user) = (Uid::ROOT, Uid::from_raw(uid));
            set_thread_res_uid(root, user, root).expect("this thread alone");
            let listener = UnixListener::bind(path).expect("it listens");
            ready.send(()).expect("somebody waits");
            for stream in listener.incoming() {
                if !serve(stream.expect("a client"), &lie) {
                    return;
                }
            }
        });
        is_ready.recv().expect("it listens");
        FakeService {
            socket,
            thread: Some(thread),
        }
    }
}

impl Drop for FakeService {
    fn drop(&mut self) {
        // A connection that sends nothing ends it.
        drop(UnixStream::connect(&self.socket));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut client: UnixStream, lie: &Lie) -> bool {
    let mut hello = [0; handshake::LENGTH];
    if client.read_exact(&mut hello).is_err() {
        return false;
    }
    client
        .write_all(&handshake::encode_verdict(Verdict::Welcome))
        .expect("greeted");
    while let Some(request) = receive(&mut client) {
        let begun = Begun {
            transaction: TransactionId(1),
            view_path: bytes(&lie.view_path),
            layers: lie.layers.as_deref().map(|path| Layers {
                path: bytes(path),
                user_xattrs: false,
                is_required: true,
                over_base: false,
            }),
            exact_because: None,
            deviations: Vec::new(),
            lent: false,
            within: None,
        };
        let (answer, brought) = match request {
            Request::Begin(begin) => {
                let brought = lie.brought.as_ref().filter(|_| begin.options.opened);
                (Answer::Begun(begun), brought.map(|path| open(path)))
            }
            Request::Attach { .. } => {
                let begun = Begun {
                    lent: true,
                    layers: None,
                    ..begun
                };
                (Answer::Begun(begun), lie.mount.as_deref().map(lend))
            }
            _ => (Answer::Nothing, None),
        };
        send(&client, &Reply::Done(answer), brought);
    }
    true
}

/// A socket from which the client receives the mount, as from the process that has mounted a
/// native view.
fn lend(mount: &OwnedFd) -> OwnedFd {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
    let (ours, theirs) = pair.expect("a pair");
    atomdir::client::send_descriptor(ours.as_fd(), mount.as_fd()).expect("sent");
    theirs
}

/// An overlay that shows both directories.
fn overlay(upper: &Path, lower: &Path) -> OwnedFd {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).expect("root can");
    let lower = format!("{}:{}", upper.display(), lower.display());
    fsconfig_set_string(&context, "lowerdir", lower).expect("set");
    fsconfig_create(&context).expect("made");
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, flags, MountAttrFlags::empty()).expect("mounted")
}

fn receive(client: &mut UnixStream) -> Option<Request> {
    let mut header = [0; frame::HEADER_LENGTH];
    client.read_exact(&mut header).ok()?;
    let length = frame::decode_header(header, frame::REQUEST_LENGTH_MAX).ok()?;
    let mut payload = vec![0; length];
    client.read_exact(&mut payload).ok()?;
    frame::decode(&payload).ok()
}

fn send(client: &UnixStream, reply: &Reply, descriptor: Option<OwnedFd>) {
    let bytes = frame::encode(reply, frame::REPLY_LENGTH_MAX).expect("encoded");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    // Sending fails if the client has closed the connection, which is one way to refuse.
    let _ = sendmsg(
        client,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    );
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

fn open(path: &Path) -> OwnedFd {
    fs::File::open(path).expect("opened").into()
}

struct Scene {
    evil: PathBuf,
    precious: PathBuf,
    stranger: User,
    root: User,
    scratch: Scratch,
}

/// A stranger's directory, and a directory of root's that the stranger wants to reach.
fn scene(test: &str) -> Scene {
    let scratch = Scratch::new(test);
    let stranger = User::stranger(scratch.path());
    let script = format!(
        "mkdir -p evil/sub precious/sub; chown -R {}:{} evil; echo mine > precious/file",
        stranger.uid, stranger.gid
    );
    shell(scratch.path(), &script);
    Scene {
        evil: scratch.join("evil"),
        precious: scratch.join("precious"),
        root: User::root(scratch.path()),
        stranger,
        scratch,
    }
}

impl Scene {
    fn run_in(&self, directory: &Path, options: &[&str]) -> Outcome {
        let command = ["--", "chown", "-R", "5", "."];
        let arguments = ["run"].iter().chain(options).chain(&command);
        atomdir_in(&self.root, directory, arguments)
    }
}

/// Root works in a stranger's directory, whose service names a directory of root's as the view.
#[test]
fn root_does_not_run_a_command_where_a_strangers_service_says() {
    let scene = scene("fake-service");
    let before = look(&scene.precious);
    let lie = |brought: Option<&PathBuf>, layers: Option<&str>| Lie {
        view_path: scene.precious.clone(),
        brought: brought.cloned(),
        layers: layers.map(PathBuf::from),
        mount: None,
    };
    for (lie, code) in [
        (lie(Some(&scene.precious), None), NOT_PERMITTED),
        (lie(None, None), INTERNAL),
        (
            lie(Some(&scene.precious), Some("../../precious")),
            NOT_PERMITTED,
        ),
    ] {
        let _service = FakeService::start(&scene.stranger, &scene.evil, lie);
        for directory in [&scene.evil, &scene.evil.join("sub")] {
            scene.run_in(directory, &[]).expect(NOT_PERMITTED).says(&[
                "not trusted",
                "games",
                "--trust",
            ]);
        }
        // Even a user who trusts the stranger gets no such view.
        for view in ["exact", "native"] {
            let outcome = scene.run_in(&scene.evil, &["--trust", "--view", view]);
            assert!([code, INTERNAL].contains(&outcome.code), "{outcome}");
        }
        let begun = atomdir_in(&scene.root, &scene.evil, ["begin", "--trust"]);
        assert!([code, INTERNAL].contains(&begun.code), "{begun}");
        assert_eq!(begun.text(), "", "it must not print this path as a view");
    }
    assert_equal(
        "what the stranger named, before and after",
        &before,
        &look(&scene.precious),
        &CompareOptions::untouched(),
    );
    drop(scene.scratch);
}

/// The stranger's service claims that somebody else has mounted a native view, and brings a mount.
#[test]
fn root_enters_no_mount_that_a_strangers_service_brings() {
    let scene = scene("fake-mount");
    let lie = Lie {
        view_path: scene.precious.clone(),
        brought: None,
        layers: None,
        mount: Some(Arc::new(overlay(&scene.precious, &scene.evil))),
    };
    let _service = FakeService::start(&scene.stranger, &scene.evil, lie);
    let exec = ["--trust", "exec", "1", "--", "echo", "it runs"];
    let outcome = atomdir_in(&scene.root, &scene.evil, exec);
    assert_eq!(outcome.expect(INTERNAL).text(), "");
}

/// A stranger listens in root's own store. They cannot put a socket there, but one may be
/// left over from when the directory was theirs.
#[test]
fn only_a_service_of_the_owner_or_root_is_trusted() {
    let scene = scene("impostor");
    let lie = Lie {
        view_path: scene.precious.clone(),
        brought: Some(scene.precious.clone()),
        layers: None,
        mount: None,
    };
    let _service = FakeService::start(&scene.stranger, &scene.evil, lie);
    shell(scene.scratch.path(), "chown -R root:root evil");
    scene
        .run_in(&scene.evil, &[])
        .expect(NOT_PERMITTED)
        .says(&["games", "neither root nor the owner"]);
}

/// A stranger has set root's environment, as `sudo -E` lets them.
#[test]
fn environment_cannot_lead_root_to_a_strangers_service() {
    let scene = scene("environment");
    let lie = Lie {
        view_path: scene.precious.clone(),
        brought: Some(scene.precious.clone()),
        layers: None,
        mount: None,
    };
    let _service = FakeService::start(&scene.stranger, &scene.evil, lie);
    let mut command = Command::new(binary());
    scene.root.dress(&mut command);
    command
        .current_dir(&scene.precious)
        .env("ATOMDIR_TX", "1")
        .env("ATOMDIR_STORE", &scene.precious)
        .env("ATOMDIR_SOCKET", scene.evil.join(".atomdir/socket"))
        .env("ATOMDIR_SECRET", "00")
        .args(["run", "--", "true"]);
    capture_output(&mut command)
        .expect(NOT_PERMITTED)
        .says(&["games", "neither root nor the owner"]);
}
