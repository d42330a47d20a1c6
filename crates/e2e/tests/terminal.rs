//! What the user of a terminal sees and types is what it seems to be, whatever the names of files and
//! whatever a command has written to the terminal.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use atomdir_testing::{Fixture, binary, capture_output, look_long, tools_present};

/// Ways to hide what is printed next, as arguments of printf(1).
const HIDING: [&str; 18] = [
    r"\033[2J\033[H\033[4;5r\033[4;1H",
    r"\033[5;6r\033[?6h",
    r"\033[?1049h",
    r"\033[?47h",
    r"\033[8m",
    r"\033[30;40m",
    r"\033(0",
    r"\016\033)0",
    r"\033[4h",
    r"\033[?7l\033[1;1H",
    r"\033[?25l\033[H",
    r"\033]0;title",
    r"\033Pq",
    r"\033[",
    r"\033[?2026h",
    r"\033[3g",
    r"\033[?1003h\033[?2004h",
    r"\033[H\0337\033[?1049h",
];

fn pane(socket: &str) -> String {
    let mut command = Command::new("tmux");
    command.args(["-L", socket, "capture-pane", "-p"]);
    capture_output(&mut command).text()
}

/// Runs a script on a terminal of its own until it shows the text, and returns what it shows then.
fn shown(fixture: &Fixture, script: &str, until: &str) -> String {
    // A server that ends refuses the next session.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = format!("atomdir-test-{}-{number}", std::process::id());
    let file = fixture.scratch.join("on-terminal.sh");
    let home = fixture.store.user().home();
    let text = format!(
        "cd {}; export HOME={} PATH={}:$PATH; {script}; sleep 100\n",
        fixture.base.display(),
        home.display(),
        binary().parent().expect("a folder").display()
    );
    fs::write(&file, text).expect("written");
    let mut command = Command::new("tmux");
    command.args(["-L", &socket, "-f", "/dev/null", "new-session", "-d"]);
    command.args(["-x", "100", "-y", "24", "sh"]).arg(&file);
    capture_output(&mut command).expect(0);
    let mut seen = String::new();
    // If something hides the text, the caller's check fails and shows the screen.
    look_long(|| {
        seen = pane(&socket);
        seen.contains(until).then_some(())
    });
    let mut command = Command::new("tmux");
    command.args(["-L", &socket, "kill-server"]);
    capture_output(&mut command);
    seen
}

#[test]
fn a_sealed_command_cannot_hide_the_listing() {
    let test = "a_sealed_command_cannot_hide_the_listing";
    if !tools_present(test, &["tmux"]) {
        return;
    }
    let fixture = Fixture::new("hidden-listing", "echo k > authorized_keys");
    for (number, hiding) in HIDING.iter().enumerate() {
        let settings = ["true", "stty raw -echo -opost"][number % 2];
        let command = format!("echo evil >> authorized_keys; {settings}; printf '{hiding}'");
        fs::write(fixture.scratch.join("command.sh"), command).expect("written");
        let command = fixture.scratch.join("command.sh");
        let script = format!("atomdir run --ask -- sh {}", command.display());
        let seen = shown(&fixture, &script, "Commit 1 change");
        let lines: Vec<&str> = seen.lines().map(str::trim_end).collect();
        let listed = lines
            .iter()
            .position(|line| line.ends_with("M authorized_keys"));
        let asked = lines
            .iter()
            .position(|line| line.starts_with("Commit 1 change"));
        assert!(
            listed.is_some() && listed < asked,
            "{hiding} {settings}:\n{seen}"
        );
        let script = format!("atomdir run --dry-run -- sh {}", command.display());
        let seen = shown(&fixture, &script, "are dropped");
        assert!(
            seen.contains("M authorized_keys"),
            "{hiding} {settings}:\n{seen}"
        );
    }
    fixture.store.call(["abort", "--all"]).expect(0);
}

/// Names that would do something if a shell took them as they are; `N` becomes a number.
const NAMES: [&str; 12] = [
    "$(id>pwnedN)",
    "`id>pwnedN`",
    ";id>pwnedN;",
    "&id>pwnedN",
    "|id>pwnedN",
    "\nid>pwnedN",
    "'id>pwnedN",
    "\"$(id>pwnedN)\"",
    ">pwnedN",
    "*[a]$(id>pwnedN)",
    "\\$(id>pwnedN)",
    "$(id>pwnedN)/below",
];

/// Types lines with a Tab in each, and Enter, in a shell on a terminal.
const TYPE: &str = r#"
import os, pty, select, sys, time
shell = sys.argv[1]
start = {
    'bash': ['bash', '--noprofile', '--rcfile', sys.argv[2], '-i'],
    'zsh': ['zsh', '-f', '-i'],
    'fish': ['fish', '--no-config', '-i'],
}[shell]
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.execvp(start[0], start)
def part():
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b''
def read(seconds):
    # Reads until nothing has come for a while. A shell that is not ready yet reads later what
    # is typed now.
    end, text = time.time() + seconds, b''
    while time.time() < end and select.select([terminal], [], [], 0.2 if text else 1)[0]:
        more = part()
        if not more:
            break
        text += more
    return text
def until(mark):
    text = b''
    while mark not in text:
        more = part()
        if not more:
            sys.exit('the shell has ended: %r' % text)
        text += more
setup = {
    'bash': '',
    'zsh': 'autoload -U compinit; compinit -D; source <(atomdir completions zsh); ',
    'fish': 'atomdir completions fish | source; ',
}[shell]
read(1)
os.write(terminal, (setup + 'echo rea""dy\n').encode())
until(b'ready')
for line in sys.argv[3:]:
    os.write(terminal, line.encode())
    read(1)
    os.write(terminal, b'\n')
    read(0.5)
    # Leaves a quote that is not closed.
    os.write(terminal, b'\x03')
    read(0.2)
os.write(terminal, b'echo en""ded\n')
until(b'ended')
os.close(terminal)
"#;

#[test]
fn a_completed_name_is_never_executed() {
    let test = "a_completed_name_is_never_executed";
    if !tools_present(test, &["python3", "bash", "zsh", "fish"]) {
        return;
    }
    let fixture = Fixture::new("completed-names", "true");
    let scratch = fixture.scratch.path();
    let program = binary();
    let folder = program.parent().expect("a folder").display();
    fs::write(scratch.join("type.py"), TYPE).expect("written");
    fs::write(scratch.join("rc"), "source <(atomdir completions bash)\n").expect("written");
    let system = std::env::var("PATH").expect("a search path");
    let try_in = |name: &str| {
        let directory = scratch.join(name);
        let mut lines = Vec::new();
        for (number, hostile) in NAMES.iter().enumerate() {
            let hostile = hostile.replace('N', &number.to_string());
            // One that is completed to its end, and two of which the common start is.
            for (start, endings) in [("one", &[""][..]), ("two", &["1", "2"])] {
                for ending in endings {
                    let file = format!("{start}{number}_{hostile}{ending}");
                    let file = directory.join(file);
                    fs::create_dir_all(file.parent().expect("a directory")).expect("made");
                    fs::write(file, "").expect("written");
                }
                lines.push(format!("atomdir diff 7 -- {start}{number}_\t"));
            }
        }
        let mut command = Command::new("python3");
        command.arg(scratch.join("type.py")).arg(name);
        command.arg(scratch.join("rc")).args(lines);
        command
            .env("PATH", format!("{folder}:{system}"))
            .env("HOME", scratch);
        capture_output(command.current_dir(&directory)).expect(0);
        let made = fs::read_dir(&directory).expect("listed");
        let made = made.map(|entry| entry.expect("an entry").file_name());
        let pwned: Vec<_> = made
            .filter(|name| name.to_string_lossy().starts_with("pwned"))
            .collect();
        assert!(pwned.is_empty(), "{name}: {pwned:?}");
    };
    std::thread::scope(|scope| {
        for name in ["bash", "zsh", "fish"] {
            let try_in = &try_in;
            scope.spawn(move || try_in(name));
        }
    });
}
