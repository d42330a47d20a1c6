//! Programs wait for transactions that have written what they change (`config guard-writers wait`).

use std::process::Command;

use atomdir::Store as Library;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::waits::{Program, TREE, wait_until_waiting, waiting};
use super::*;

fn waiting_guard(test: &str, prepare: &str) -> Option<Guarded> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "only root can mount a guard");
        return None;
    }
    let fixture = Fixture::new("guard", prepare);
    let config = ["config", "guard-writers", "wait"];
    fixture.store.call(config).expect(0);
    fixture.store.call(["mount"]).expect(0);
    Some(Guarded { fixture })
}

#[test]
fn programs_wait_for_transactions_that_have_written_the_same() {
    let test = "programs_wait_for_transactions_that_have_written_the_same";
    let prepare = format!("{TREE}\nchmod 755 . w; chmod 666 w/f; mkdir -m 777 own");
    let Some(guarded) = waiting_guard(test, &prepare) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    guarded.open_to_others();
    let stranger = User::stranger(guarded.fixture.scratch.path());
    let calls = [
        ("echo more >> w/f", "grep -q more w/f"),
        (": > w/f", "! test -s w/f"),
        ("mv w/x w/f", "test $(cat w/f) = x; echo x > w/x"),
        ("rm w/f", "! test -e w/f; echo old > w/f"),
        ("chmod 640 w/f", "test $(stat -c %a w/f) = 640"),
    ];
    for (number, (call, check)) in calls.iter().enumerate() {
        let writer = store.begin();
        store.exec(&writer, "echo mine >> w/f").expect(0);
        let program = Program::start(base, call);
        wait_until_waiting(&guarded, 1);
        // Others go on.
        shell(base, "echo other > v/z");
        match number % 2 {
            0 => store.commit(&writer).expect(0),
            _ => store.abort(&writer).expect(0),
        };
        program.ended().expect(0);
        shell(base, check);
        assert_eq!(waiting(&guarded), 0, "{call}");
    }
    // Each has what the other has done, and another user waits as well.
    shell(base, "echo old > w/f; chmod 666 w/f");
    let writer = store.begin();
    store.exec(&writer, "echo mine >> w/f").expect(0);
    let mut command = Command::new("/bin/sh");
    stranger.dress(&mut command);
    let program = Program::spawn(command.current_dir(base), "echo theirs >> w/f");
    wait_until_waiting(&guarded, 1);
    store.commit(&writer).expect(0);
    program.ended().expect(0);
    assert_eq!(guarded.read("w/f"), "old\nmine\ntheirs\n");
    // Until the setting is another one.
    let writer = store.begin();
    store.exec(&writer, "echo mine >> w/f").expect(0);
    let program = Program::start(base, "echo last >> w/f");
    wait_until_waiting(&guarded, 1);
    let config = ["config", "guard-writers", "win"];
    store.call(config).expect(0);
    program.ended().expect(0);
    store.commit(&writer).expect(CONFLICT);
    store.abort(&writer).expect(0);
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

#[test]
fn waits_for_writers_end_with_whoever_is_killed() {
    let test = "waits_for_writers_end_with_whoever_is_killed";
    let Some(guarded) = waiting_guard(test, TREE) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    // The holder of the transaction.
    let mut command = store.command(["run", "--view", "exact", "--", "/bin/sh"]);
    let mut holder = Program::spawn(
        &mut command,
        "echo mine > w/f; echo written; exec sleep 1000",
    );
    let child = holder.0.as_mut().expect("it runs");
    let mut line = [0; 8];
    let output = child.stdout.as_mut().expect("piped");
    output.read_exact(&mut line).expect("it writes");
    let program = Program::start(base, "echo new > w/f");
    wait_until_waiting(&guarded, 1);
    kill_process_group(Pid::from_child(child), Signal::KILL).expect("killed");
    program.ended().expect(0);
    assert_eq!(guarded.read("w/f"), "new\n");
    // The program.
    let writer = store.begin();
    store.exec(&writer, "echo mine > w/f").expect(0);
    let program = Program::start(base, "exec rm w/f");
    wait_until_waiting(&guarded, 1);
    drop(program);
    assert_eq!(waiting(&guarded), 0);
    store.commit(&writer).expect(0);
    assert_eq!(guarded.read("w/f"), "mine\n");
    // It does not wait for itself.
    let library = Library::open(base).expect("it opens");
    let own = library.begin().expect("it begins");
    own.write("w/f", "own").expect("written");
    let error = fs::write(base.join("w/f"), "outside").expect_err("it would wait for itself");
    assert_eq!(error.raw_os_error(), Some(Errno::DEADLK.raw_os_error()));
    own.commit().expect("it commits");
    assert_eq!(guarded.read("w/f"), "own");
}
