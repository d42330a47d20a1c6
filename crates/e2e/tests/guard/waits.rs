//! Calls through the guard wait for locks of transactions.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use atomdir::{LockMode, Store as Library};
use atomdir_testing::{Outcome, View};
use rustix::io::Errno;

use super::*;

pub const TREE: &str =
    "mkdir -p w/empty v; echo old > w/f; echo x > w/x; echo y > w/y; echo z > v/z
    dd if=/dev/zero of=w/big bs=4096 count=512 status=none; setfattr -n user.old -v 1 w/f";

/// A program that is killed if the test fails.
pub struct Program(pub Option<Child>);

impl Program {
    pub fn start(directory: &Path, script: &str) -> Program {
        Program::spawn(Command::new("/bin/sh").current_dir(directory), script)
    }

    pub fn spawn(command: &mut Command, script: &str) -> Program {
        command.args(["-ec", script]).process_group(0);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        Program(Some(child))
    }

    pub fn ended(mut self) -> Outcome {
        let child = self.0.take().expect("it has not ended");
        let output = child.wait_with_output().expect("it ends");
        Outcome::from_output("a program".to_owned(), output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn waiting(guarded: &Guarded) -> u64 {
    let status = guarded.fixture.store.call(["--json", "service", "status"]);
    let status = status.expect(0).text();
    let (_, after) = status.split_once("\"waiting\":").expect("it is there");
    let digits = after.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

pub fn wait_until_waiting(guarded: &Guarded, count: u64) {
    wait_until("calls that wait", || waiting(guarded) == count);
}

pub fn lock(guarded: &Guarded, holder: &View, options: &[&str]) {
    let named = ["lock", holder.id.as_str()];
    guarded
        .fixture
        .store
        .call(named.iter().chain(options))
        .expect(0);
}

#[test]
fn programs_wait_for_locks_and_go_on_when_these_end() {
    let test = "programs_wait_for_locks_and_go_on_when_these_end";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let calls = [
        ("printf new 1<> w/f", "grep -q new w/f"),
        ("echo more >> w/f", "grep -q more w/f"),
        (": > w/f", "! test -s w/f"),
        ("chmod 640 w/f", "test $(stat -c %a w/f) = 640"),
        ("setfattr -n user.a -v 1 w/f", "getfattr -n user.a w/f"),
        ("ln w/f w/l", "test w/f -ef w/l; rm w/l"),
        ("mv w/f w/g", "! test -e w/f; mv w/g w/f"),
        ("mv w/x w/f", "test $(cat w/f) = x; echo x > w/x"),
        ("rm w/f", "! test -e w/f; echo old > w/f"),
        ("mkdir w/d", "rmdir w/d"),
        ("echo made > w/made", "test $(cat w/made) = made; rm w/made"),
        ("mv w moved", "! test -e w; mv moved w"),
    ];
    let ends = ["unlock", "abort", "commit"];
    for (number, (call, check)) in calls.iter().enumerate() {
        let mode: &[&str] = match number % 2 {
            0 => &["--shared", "--subtree", "w"],
            _ => &["--subtree", "w"],
        };
        let holder = store.begin();
        lock(&guarded, &holder, mode);
        let program = Program::start(base, call);
        wait_until_waiting(&guarded, 1);
        // Others, and reads of what is known, go on.
        shell(
            base,
            "cat w/y > /dev/null; echo other > v/z; mkdir v/d; rmdir v/d",
        );
        let end = ends[number % 3];
        store.call([end, &holder.id]).expect(0);
        if end == "unlock" {
            store.abort(&holder).expect(0);
        }
        program.ended().expect(0);
        assert_eq!(waiting(&guarded), 0, "{call}");
        shell(base, check);
    }
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

#[test]
fn programs_go_on_when_the_holder_of_a_lock_is_killed() {
    let test = "programs_go_on_when_the_holder_of_a_lock_is_killed";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let store = &guarded.fixture.store;
    let script = format!(
        "'{}' lock $ATOMDIR_TX w/f; echo locked; exec sleep 1000",
        binary().display()
    );
    let mut command = store.command(["run", "--view", "exact", "--", "/bin/sh"]);
    let mut holder = Program::spawn(&mut command, &script);
    let child = holder.0.as_mut().expect("it runs");
    let mut line = [0; 7];
    let output = child.stdout.as_mut().expect("piped");
    output.read_exact(&mut line).expect("it locks");
    let program = Program::start(guarded.base(), "echo new > w/f");
    wait_until_waiting(&guarded, 1);
    let group = rustix::process::Pid::from_child(child);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("killed");
    program.ended().expect(0);
    assert_eq!(guarded.read("w/f"), "new\n");
}

/// The kernel keeps directories and pages locked for calls that wait. Commits do not wait for them.
#[test]
fn commits_to_what_waiting_calls_are_to_change_go_on() {
    let test = "commits_to_what_waiting_calls_are_to_change_go_on";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    // Names: of the holder, and of others.
    let holder = store.begin();
    lock(&guarded, &holder, &["w/f"]);
    let all = "cat w/f w/x w/y; ls w/none 2> /dev/null || true";
    assert_eq!(shell(base, all).text(), "old\nx\ny\n");
    let program = Program::start(base, "mv w/x w/f");
    wait_until_waiting(&guarded, 1);
    store
        .run("echo y2 > w/y.new; mv w/y.new w/y; echo z2 > v/z")
        .expect(0);
    // That one gives way, so nobody sees an old name.
    assert_eq!(guarded.read("w/y"), "y2\n");
    assert_eq!(waiting(&guarded), 0);
    program.ended().expect(1).says(&["busy"]);
    let program = Program::start(base, "mv w/x w/f");
    wait_until_waiting(&guarded, 1);
    store.run("echo z3 > v/z").expect(0);
    assert_eq!(
        (guarded.read("v/z").as_str(), waiting(&guarded)),
        ("z3\n", 1)
    );
    store
        .exec(&holder, "echo f2 > w/f.new; mv w/f.new w/f; echo > w/none")
        .expect(0);
    store.commit(&holder).expect(0);
    program.ended().expect(0);
    assert_eq!(
        shell(base, "cat w/f w/y w/none; ls w").text(),
        "x\ny2\n\nbig\nempty\nf\nnone\ny\n"
    );
    // Pages: of the holder, and of others.
    let holder = store.begin();
    lock(&guarded, &holder, &["--range", "0-4096", "w/big"]);
    shell(base, "cat w/big > /dev/null");
    let byte = |at: u64| {
        let mut file = fs::File::open(base.join("w/big")).expect("it opens");
        file.seek(SeekFrom::Start(at)).expect("it seeks");
        let mut byte = [0];
        file.read_exact(&mut byte).expect("it is there");
        byte[0]
    };
    let put = |at: u64| format!("printf N | dd of=w/big bs=1 seek={at} conv=notrunc status=none");
    let program = Program::start(base, &put(100));
    wait_until_waiting(&guarded, 1);
    store.run_exact(&put(8192)).expect(0);
    assert_eq!(byte(8192), b'N');
    store.exec(&holder, &put(10)).expect(0);
    store.commit(&holder).expect(0);
    program.ended().expect(0);
    wait_until("what the commit has left", || byte(10) == b'N');
    assert_eq!((byte(100), byte(101)), (b'N', 0));
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_end_waits() {
    let test = "signals_end_waits";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    // SAFETY: the handler does nothing. Without SA_RESTART the call returns.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    let holder = store.begin();
    lock(&guarded, &holder, &["--subtree", "w"]);
    let calls: [(&str, &(dyn Fn() -> std::io::Result<()> + Sync)); 3] = [
        ("unlink", &|| fs::remove_file(base.join("w/f"))),
        ("rename", &|| fs::rename(base.join("w/x"), base.join("w/f"))),
        ("write", &|| {
            let file = fs::OpenOptions::new().append(true).open(base.join("w/y"))?;
            rustix::io::write(&file, b"more")?;
            Ok(())
        }),
    ];
    for (what, call) in calls {
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let thread = scope.spawn(move || {
                // SAFETY: it returns this thread's own handle.
                tell.send(unsafe { libc::pthread_self() }).expect("sent");
                call()
            });
            let handle = told.recv().expect("it begins");
            wait_until_waiting(&guarded, 1);
            // SAFETY: the thread runs until it has been joined.
            unsafe { libc::pthread_kill(handle, libc::SIGUSR1) };
            let error = thread.join().expect("no panic").expect_err("interrupted");
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{what}");
        });
        assert_eq!(waiting(&guarded), 0);
    }
    // A program that is killed.
    let program = Program::start(base, "exec rm w/f");
    wait_until_waiting(&guarded, 1);
    drop(program);
    assert_eq!(waiting(&guarded), 0);
    assert_eq!(shell(base, "cat w/f w/x w/y").text(), "old\nx\ny\n");
    store.abort(&holder).expect(0);
    shell(base, "rm w/f");
}

#[test]
fn waiting_calls_fail_when_the_guard_goes() {
    let test = "waiting_calls_fail_when_the_guard_goes";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    for end in ["umount", "stop", "kill"] {
        let holder = store.begin();
        lock(&guarded, &holder, &["--subtree", "w"]);
        let write = Program::start(base, "echo lost > w/f");
        // The other way round the shell would wait in the kernel, to look up the name.
        wait_until_waiting(&guarded, 1);
        let unlink = Program::start(base, "rm w/x");
        wait_until_waiting(&guarded, 2);
        match end {
            "umount" => drop(store.call(["umount"]).expect(0)),
            "stop" => drop(store.call(["service", "stop", "--keep"]).expect(0)),
            _ => assert!(store.kill_service()),
        }
        for program in [write, unlink] {
            assert_ne!(program.ended().code, 0, "{end}");
        }
        if end == "kill" {
            store.call(["umount"]).expect(0);
        }
        assert_eq!(shell(base, "cat w/f w/x").text(), "old\nx\n", "{end}");
        if end == "umount" {
            store.abort(&holder).expect(0);
        }
        store.call(["mount"]).expect(0);
    }
}

#[test]
fn waits_of_one_user_hold_up_nobody_else() {
    let test = "waits_of_one_user_hold_up_nobody_else";
    let prepare = format!("{TREE}\nchmod 755 . w; chmod 666 w/f; mkdir -m 777 own");
    let Some(guarded) = Guarded::new(test, &prepare) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    guarded.open_to_others();
    let stranger = User::stranger(guarded.fixture.scratch.path());
    let holder = store.begin();
    lock(&guarded, &holder, &["w/f"]);
    // The kernel begins only one write to a file at a time, so each has a file of its own.
    let files: Vec<String> = (0..70).map(|number| format!("own/{number}")).collect();
    for file in &files {
        fs::write(base.join(file), "old").expect("made");
        shell(base, &format!("chmod 666 {file}"));
    }
    let second = store.begin();
    lock(&guarded, &second, &["--subtree", "own"]);
    let programs: Vec<Program> = files
        .iter()
        .map(|file| {
            let mut command = Command::new("/bin/sh");
            stranger.dress(&mut command);
            let script = format!("printf new 1<> {file}");
            Program::spawn(command.current_dir(base), &script)
        })
        .collect();
    wait_until_waiting(&guarded, 64);
    // Root's calls go on, and wait as well.
    shell(base, "echo other > v/z; mkdir v/d; rmdir v/d; cat v/z");
    let own = Program::start(base, "echo root > w/f");
    wait_until_waiting(&guarded, 65);
    store.abort(&second).expect(0);
    let outcomes = programs.into_iter().map(Program::ended);
    let (done, refused): (Vec<_>, Vec<_>) = outcomes.partition(|one| one.code == 0);
    assert_eq!((done.len(), refused.len()), (64, 6));
    store.abort(&holder).expect(0);
    own.ended().expect(0);
}

#[test]
fn a_program_does_not_wait_for_its_own_transaction() {
    let test = "a_program_does_not_wait_for_its_own_transaction";
    let Some(guarded) = Guarded::new(test, TREE) else {
        return;
    };
    let library = Library::open(guarded.base()).expect("it opens");
    let own = library.begin().expect("it begins");
    own.lock("w/f", LockMode::Exclusive).expect("locked");
    let error = fs::write(guarded.base().join("w/f"), "own").expect_err("it would wait for itself");
    assert_eq!(error.raw_os_error(), Some(Errno::DEADLK.raw_os_error()));
    // Its children wait: whether it waits for them nobody knows.
    let child = Program::start(guarded.base(), "echo child > w/f");
    wait_until_waiting(&guarded, 1);
    own.abort();
    child.ended().expect(0);
    assert_eq!(guarded.read("w/f"), "child\n");
}
