//! A listed user of root's store uses what the owner of a directory or file controls in the file
//! system: projects, encryption, the limit of names, and space for attributes. Whatever becomes of
//! that user's own commits, root's store goes on, and opens again after its service was killed.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use atomdir_testing::{Scratch, Store, User, capture_output, shell, skip, tools_present};

/// The file systems, each with the tool that makes it and its command line.
const FILE_SYSTEMS: [(&str, &str, &str); 3] = [
    ("ext4", "mkfs.ext4", "mkfs.ext4 -q"),
    ("encrypted", "mkfs.ext4", "mkfs.ext4 -q -O encrypt"),
    ("xfs", "mkfs.xfs", "mkfs.xfs -q"),
];

/// Gives a directory a project that its new objects inherit.
const PROJECT: &str = "
import fcntl, os, struct, sys
f = os.open(sys.argv[1], os.O_RDONLY)
b = bytearray(28)
fcntl.ioctl(f, 0x801c581f, b)
v = list(struct.unpack('IIIII8s', b))
v[0] |= 0x200
v[3] = 5
fcntl.ioctl(f, 0x401c5820, struct.pack('IIIII8s', *v))
";

/// Encrypts an empty directory.
const ENCRYPT: &str = "
import fcntl, os, struct, sys
f = os.open(sys.argv[1], os.O_RDONLY)
raw = b'k' * 64
a = bytearray(struct.pack('<II32sII32s', 2, 0, b'', len(raw), 0, b'') + raw)
fcntl.ioctl(f, 0xc0506617, a, True)
fcntl.ioctl(f, 0x800c6613, struct.pack('<BBBBB3s16s', 2, 1, 4, 0, 0, b'', bytes(a[8:24])))
";

/// Gives a file all but two of the names that ext4 allows.
const NAMES: &str = "
import os, sys
os.chdir(sys.argv[1])
os.mkdir('l')
open('f', 'w').close()
for i in range(64998): os.link('f', 'l/%d' % i)
";

struct Attack {
    /// What the user does outside, with this program, to a directory of theirs.
    outside: &'static str,
    /// What their transactions then do in it.
    inside: [&'static str; 2],
}

const ATTACKS: [Attack; 4] = [
    Attack {
        outside: PROJECT,
        inside: [
            "echo hi > new",
            "mkdir sub; ln ../plain more; mv ../moved .",
        ],
    },
    Attack {
        outside: ENCRYPT,
        inside: [
            "echo hi > new",
            "mkdir sub; ln ../plain more; mv ../moved .",
        ],
    },
    Attack {
        outside: NAMES,
        inside: ["ln f x1", "ln f x2; chmod 600 f"],
    },
    Attack {
        outside: "import os, sys; open(sys.argv[1] + '/f', 'w').close()",
        inside: [
            "for i in $(seq 30); do setfattr -n user.a$i -v $(head -c 200 /dev/zero | tr '\\0' x) f; done; true",
            "setfattr -n user.b -v $(head -c 3000 /dev/zero | tr '\\0' y) f; chmod 640 f",
        ],
    },
];

fn run_as(user: &User, directory: &PathBuf, program: &str) -> bool {
    let mut command = Command::new("python3");
    user.dress(&mut command);
    let outcome = capture_output(command.args(["-c", program]).arg(directory));
    outcome.code == 0
}

#[test]
fn a_listed_user_does_not_stall_roots_store() {
    let test = "a_listed_user_does_not_stall_roots_store";
    if !rustix::process::geteuid().is_root() {
        return skip(
            test,
            "only root can mount file systems and act as another user",
        );
    }
    if !tools_present(test, &["python3", "setfattr"]) {
        return;
    }
    for (name, tool, make) in FILE_SYSTEMS {
        if !tools_present(test, &[tool]) {
            continue;
        }
        let scratch = Scratch::new(&format!("attacks-{name}"));
        shell(
            scratch.path(),
            &format!(
                "truncate -s 400M image; {make} image; mkdir m; mount -o loop image m; mkdir m/base"
            ),
        );
        let base = scratch.join("m/base");
        let user = User::stranger(scratch.path());
        let store = Store::init(&base, &User::root(scratch.path()));
        store.call(["config", "allow", user.name]).expect(0);
        store.call(["service", "start"]).expect(0);
        for (number, attack) in ATTACKS.into_iter().enumerate() {
            let own = format!("own{number}");
            let attacked = base.join(&own).join("d");
            fs::create_dir_all(&attacked).expect("the name is free");
            for theirs in [base.join(&own), attacked.clone()] {
                chown(theirs, Some(user.uid), Some(user.gid)).expect("root may");
            }
            for file in ["plain", "moved"] {
                let path = base.join(&own).join(file);
                fs::write(&path, "old").expect("it is written");
                chown(path, Some(user.uid), Some(user.gid)).expect("root may");
            }
            if !run_as(&user, &attacked, attack.outside) {
                // Each is possible on one of them.
                eprintln!("attack {number} is not possible on {name}");
                continue;
            }
            for inside in attack.inside {
                let script = format!("cd {own}/d; {inside}");
                // It may fail, or not.
                let outcome = store.call_as(&user, ["run", "-q", "--", "sh", "-c", &script]);
                eprintln!("{name}, attack {number}: {outcome}");
                store.run(&format!("echo {number} > root")).expect(0);
            }
            assert!(store.kill_service());
            let again = format!("echo again > root; test -f {own}/plain -o -f {own}/d/moved");
            store.run(&again).expect(0);
            let moved = base.join(&own).join("moved").exists() || attacked.join("moved").exists();
            assert!(moved, "{name}, attack {number}: a file is lost");
        }
        drop(store);
        shell(scratch.path(), "umount m || umount -l m");
    }
}
