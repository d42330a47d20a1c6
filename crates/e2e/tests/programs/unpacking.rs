//! `atomdir unpack`: an archive appears as `tar` and `unzip` would unpack it, whole or not at all, and
//! hostile ones change nothing outside the directory.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Random, binary, capture_output, look, pick, shell, tools_present, users_can_mount,
    wait_until,
};

/// A tree with all that archives hold.
const TREE: &str = r"
mkdir tree tree/deep tree/deep/er tree/closed
echo text > tree/file
head -c 300000 /dev/urandom > tree/deep/large
printf x > tree/sparse
truncate -s 3M tree/sparse
printf y >> tree/sparse
: > tree/empty
ln tree/deep/large tree/linked
ln -s ../file tree/deep/link
ln -s /etc/passwd tree/absolute
ln -s deep tree/directory-link
printf odd > $(printf 'tree/odd\377name')
echo long > tree/deep/$(printf '%0120d' 1)$(printf '%0120d' 2)
chmod 640 tree/file
chmod 4755 tree/empty
chmod 500 tree/closed
chown -h 12:34 tree/file tree/empty tree/deep/link
touch -h -d '2001-02-03 04:05:06.789' tree/file tree/deep tree/deep/link tree/deep/er
touch -d '1969-12-31 23:00:00' tree/empty
";

/// Each makes an archive of `tree`.
const ARCHIVES: [(&str, &str); 7] = [
    ("plain.tar", "tar -cf plain.tar tree"),
    ("sparse.tar", "tar --format=gnu -S -cf sparse.tar tree"),
    (
        "old.tar.gz",
        "rm -f tree/deep/000* && tar --format=ustar -czf old.tar.gz --exclude empty tree",
    ),
    (
        "pax.tar.xz",
        "mkfifo tree/pipe && tar --format=pax -cJf pax.tar.xz tree",
    ),
    (
        "gnu.tar.zst",
        "tar --format=gnu -cf - tree | zstd -q -o gnu.tar.zst",
    ),
    (
        "frames.tar.zst",
        "tar -cf - tree > all && head -c 1000 all | zstd -q > frames.tar.zst && tail -c +1001 all | zstd -q >> frames.tar.zst && rm all",
    ),
    (
        "zip.zip",
        "rm -f tree/pipe && (cd tree; find . -name 'odd*' -delete) && zip -qry zip.zip tree",
    ),
];

#[test]
fn archives_are_unpacked_as_tar_and_unzip_do() {
    if !tools_present("unpacking", &["tar", "xz", "zstd", "zip", "unzip"]) {
        return;
    }
    // The archives, and what is there already, are the same for both users.
    Fixture::for_each_owner("unpack", "", |one| {
        let scratch = one.scratch.path();
        shell(scratch, TREE);
        for (name, make) in ARCHIVES {
            shell(scratch, make);
            for options in [&[][..], &["--each"]] {
                let archive = scratch.join(name);
                let plain = Fixture::owned_by("plain", |_| one.store.user().clone(), "");
                for base in [&one.base, &plain.base] {
                    shell(
                        base,
                        "rm -rf tree; mkdir -p tree/file/x tree/deep; rmdir tree/file/x; echo old > tree/deep/large; ln -s /etc tree/empty",
                    );
                    let user = one.store.user();
                    shell(base, &format!("chown -R {}:{} .", user.uid, user.gid));
                }
                let mut command = if name.ends_with(".zip") {
                    let mut command = Command::new("unzip");
                    command.arg("-qo");
                    // unzip would not replace a directory by a file.
                    for base in [&one.base, &plain.base] {
                        shell(base, "rm -r tree");
                    }
                    command
                } else {
                    let mut command = Command::new("tar");
                    command.arg("-xf");
                    command
                };
                one.store.user().dress(&mut command);
                capture_output(command.arg(&archive).current_dir(&plain.base)).expect(0);
                let mut words = vec!["unpack".as_ref(), archive.as_os_str()];
                words.extend(options.iter().map(OsStr::new));
                one.store.call(words).expect(0);
                assert_equal(
                    &format!("{name} {options:?}: {name} unpacked (left), a store (right)"),
                    &look(&plain.base),
                    &one.look(),
                    &CompareOptions::alike(),
                );
            }
        }
        shell(&one.base, "rm -rf tree");
    });
}

/// Archives that try to get out. Python writes them, as tar would not.
const HOSTILE: &str = include_str!("hostile_archives.py");

const REFUSED: [&str; 16] = [
    "control-below.tar",
    "control-link.tar",
    "control-through.tar",
    "zip-control.zip",
    "dots.tar",
    "through-link.tar",
    "through-two.tar",
    "present-link.tar",
    "hard-link.tar",
    "hard-link-through.tar",
    "device.tar",
    "unknown.tar",
    "in-control.tar",
    "zipped.zip",
    "zip-link.zip",
    "cut.tar",
];

#[test]
fn hostile_archives_change_nothing_outside() {
    if !tools_present("unpacking-hostile", &["python3"]) {
        return;
    }
    let prepare = "ln -s ../outside out; echo mine > kept; ln -s kept inner";
    Fixture::for_each_owner("unpack-hostile", prepare, |one| {
        let scratch = one.scratch.path();
        let outside = scratch.join("outside");
        shell(
            scratch,
            "mkdir outside; echo victim > outside/victim; chmod -R a+rwX outside",
        );
        fs::write(scratch.join("make.py"), HOSTILE).expect("written");
        let made = format!("python3 make.py {}", outside.display());
        shell(scratch, &made);
        let around = look(&outside);
        for name in REFUSED {
            let archive = scratch.join(name);
            let archive = archive.to_str().expect("UTF-8");
            let before = one.look();
            let refused = one.store.call(["unpack", archive]);
            assert!(refused.code != 0, "{name}\n{refused}");
            assert_equal(name, &before, &one.look(), &CompareOptions::untouched());
            assert_equal(name, &around, &look(&outside), &CompareOptions::untouched());
            // With `--each` the harmless entries are committed.
            let each = one.store.call(["unpack", "--each", archive]);
            assert!(each.code != 0, "{name}\n{each}");
            assert!(one.base.join("good").exists(), "{name}\n{each}");
            assert_equal(name, &around, &look(&outside), &CompareOptions::untouched());
            assert_eq!(fs::read(one.base.join("kept")).expect("read"), b"mine\n");
            let is_cut = name == "cut.tar";
            assert!(is_cut || one.base.join("last").exists(), "{name}\n{each}");
            shell(
                &one.base,
                "[ ! -e d/.atomdir ] && [ ! -L d/.atomdir ] && rm -rf good last a b d; [ -L out ] && [ -L inner ]",
            );
        }
        for name in ["absolute", "twice", "over-link"] {
            let archive = scratch.join(format!("{name}.tar"));
            one.store
                .call(["unpack", archive.to_str().expect("UTF-8")])
                .expect(0);
            assert!(one.base.join("good").exists(), "{name}");
            assert_equal(name, &around, &look(&outside), &CompareOptions::untouched());
            assert_eq!(fs::read(one.base.join("kept")).expect("read"), b"mine\n");
        }
    });
}

/// Archives with damage, and one whose user id is -1, by which chown(2) means no change.
const DAMAGED: &str = r#"
import gzip, io, lzma, os, subprocess, tarfile, zlib
def tar(*files):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode='w') as archive:
        for name, size in files:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(os.urandom(size)))
    return whole.getvalue()
def keep(name, data):
    with open(name, 'wb') as file:
        file.write(data)
def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]
plain = tar(('one', 100), ('two', 50000), ('three', 100))
packed = gzip.compress(plain)
keep('checksum.tar.gz', flipped(packed, -8 + len(packed)))
keep('short.tar.gz', packed[:-8])
memory = bytearray(lzma.compress(plain, filters=[{'id': lzma.FILTER_LZMA2, 'dict_size': 4096}]))
end = 12 + memory[12] * 4
memory[memory.index(b'\x21\x01', 12) + 2] = 40
memory[end:end + 4] = zlib.crc32(memory[12:end]).to_bytes(4, 'little')
keep('memory.tar.xz', memory)
keep('short.tar.xz', lzma.compress(plain)[:-4])
keep('between.tar', plain[:1024])
keep('inside.tar', plain[:20000])
long = tarfile.TarInfo('x' * (5 << 20))
keep('long.tar', long.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
strange = tarfile.TarInfo('strange')
strange.mode, strange.pax_headers = 0o4755, {'uid': '4294967295'}
keep('strange.tar', strange.tobuf(tarfile.PAX_FORMAT) + bytes(10240))
"#;

#[test]
fn damaged_archives_leave_nothing_and_no_half_files() {
    if !tools_present("unpacking-damaged", &["python3"]) {
        return;
    }
    Fixture::for_each_owner("unpack-damaged", "", |one| {
        let scratch = one.scratch.path();
        fs::write(scratch.join("make.py"), DAMAGED).expect("written");
        shell(scratch, "python3 make.py");
        for name in [
            "checksum.tar.gz",
            "short.tar.gz",
            "memory.tar.xz",
            "short.tar.xz",
            "between.tar",
            "inside.tar",
            "long.tar",
            "strange.tar",
        ] {
            let archive = scratch.join(name);
            let before = one.look();
            let refused = one.store.call(["unpack".as_ref(), archive.as_os_str()]);
            assert!(refused.code != 0, "{name}\n{refused}");
            assert_equal(name, &before, &one.look(), &CompareOptions::untouched());
            let words = ["unpack".as_ref(), "--each".as_ref(), archive.as_os_str()];
            let each = one.store.call(words);
            assert!(each.code != 0, "{name}\n{each}");
            let two = fs::metadata(one.base.join("two"));
            assert!(
                two.is_err() || two.is_ok_and(|two| two.len() == 50000),
                "{name}"
            );
            assert!(!one.base.join("strange").exists(), "{each}");
            shell(&one.base, "rm -f one two three");
        }
    });
}

/// The zip archives of some programs contain no modes.
#[test]
fn the_umask_applies_to_zip_archives() {
    if !tools_present("unpacking-umask", &["python3"]) {
        return;
    }
    const MAKE: &str = "import zipfile
with zipfile.ZipFile('bare.zip', 'w') as zip:
    for name, attributes in [('file', 0x20), ('directory/', 0x10)]:
        info = zipfile.ZipInfo(name)
        info.create_system = 0
        info.external_attr = attributes
        zip.writestr(info, '')";
    Fixture::for_each_owner("unpack-umask", "", |one| {
        let scratch = one.scratch.path();
        fs::write(scratch.join("make.py"), MAKE).expect("written");
        shell(scratch, "python3 make.py");
        let mut command = Command::new("sh");
        one.store.user().dress(&mut command);
        let unpack = "umask 027; exec \"$0\" unpack \"$1\"";
        let archive = scratch.join("bare.zip");
        command.args(["-c".as_ref(), unpack.as_ref(), binary().as_os_str()]);
        capture_output(command.arg(archive).current_dir(&one.base)).expect(0);
        let mode = |name: &str| {
            let found = fs::metadata(one.base.join(name)).expect("it is there");
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("file"), mode("directory")), (0o640, 0o750));
    });
}

/// Both programs are killed as soon as a part of a large file is there. Plain tar leaves that part
/// under the file's own name, `atomdir unpack` leaves none or all of it.
#[test]
fn killed_unpack_leaves_no_half_file_where_tar_leaves_one() {
    const TEST: &str = "killed_unpack_leaves_no_half_file_where_tar_leaves_one";
    if !tools_present(TEST, &["tar"]) {
        return;
    }
    const BYTES: u64 = 64 << 20;
    const TRIES_MAX: usize = 50;
    let one = Fixture::new("tar-kill", "");
    let plain = one.scratch.join("plain");
    let make = "mkdir plain; head -c $1 /dev/zero | tr '\\0' x > large; tar -cf a.tar large";
    let make = make.replace("$1", &BYTES.to_string());
    shell(one.scratch.path(), &make);
    let archive = one.scratch.join("a.tar");
    let length =
        |directory: &Path| fs::metadata(directory.join("large")).map_or(0, |file| file.len());
    let kill_early = |mut command: Command, directory: &Path| {
        let mut child = command.stderr(Stdio::null()).spawn().expect("started");
        while length(directory) == 0 && child.try_wait().expect("our child").is_none() {}
        child.kill().expect("killed, or not waited for");
        child.wait().expect("ended");
    };
    let half = (1..=TRIES_MAX).find(|_| {
        shell(&plain, "rm -f large");
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&archive).current_dir(&plain);
        kill_early(tar, &plain);
        (1..BYTES).contains(&length(&plain))
    });
    println!("tar left half a file at try {half:?}");
    assert!(half.is_some(), "tar has always ended before the kill");
    for options in [&["unpack"][..], &["unpack", "--each"]] {
        for _ in 0..pick(3, 30) {
            shell(&one.base, "rm -f large");
            let words = options.iter().map(OsStr::new);
            let command = one.store.command(words.chain([archive.as_os_str()]));
            kill_early(command, &one.base);
            // Waits for the end of what is being committed.
            one.store.call(["sync"]).expect(0);
            assert!([0, BYTES].contains(&length(&one.base)), "{options:?}");
        }
    }
    one.store.assert_at_rest();
}

/// When an unpacking is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// It has read one half of the archive and waits for the other.
    HalfRead,
    /// The base shows the first directory, unless the unpacking has ended before.
    Shown,
    /// After so many looks at it, which may be before or after its commit.
    Anywhere,
}

const MOMENTS: [Moment; 3] = [Moment::HalfRead, Moment::Shown, Moment::Anywhere];

#[test]
fn a_killed_unpacking_leaves_nothing_or_whole_files() {
    const TEST: &str = "a_killed_unpacking_leaves_nothing_or_whole_files";
    if !tools_present(TEST, &["tar"]) || !users_can_mount(TEST) {
        return;
    }
    Fixture::for_each_owner("unpack-kill", "", |one| {
        let mut random = Random::for_test(TEST);
        let make = "mkdir tree; for i in $(seq 60); do mkdir tree/$i; seq $i 4000 > tree/$i/file; done; tar -cf a.tar tree";
        shell(one.scratch.path(), make);
        for each in [false, true] {
            // How many looks fit into an unpacking that nobody disturbs.
            let mut whole = unpack(one, each);
            let looks = look_while(&mut whole, usize::MAX);
            assert!(whole.wait().expect("it ends").success());
            for (_, moment) in (0..pick(9, 60)).zip(MOMENTS.into_iter().cycle()) {
                shell(&one.base, "rm -rf tree");
                let (mut child, input) = match moment {
                    Moment::HalfRead => unpack_half(one, each),
                    _ => (unpack(one, each), None),
                };
                match moment {
                    Moment::HalfRead => {}
                    Moment::Shown => wait_until("the first directory or the end", || {
                        one.base.join("tree").exists() || look_while(&mut child, 1) == 0
                    }),
                    Moment::Anywhere => _ = look_while(&mut child, random.below(looks * 5 / 4 + 1)),
                }
                if random.chance(2) {
                    let was_there = one.store.kill_service();
                    assert!(was_there || moment != Moment::HalfRead);
                } else {
                    child.kill().expect("killed, or not waited for");
                }
                drop(input);
                let ended = child.wait().expect("it ends");
                // The service may have the killed program's commit still before it.
                wait_until("the end of the transaction", || {
                    let list = one.store.call(["--json", "list"]).expect(0);
                    list.text().contains(r#""transactions":[]"#)
                });
                // Recovers it, and waits for the end of what is being committed.
                one.store.call(["sync"]).expect(0);
                let found = check(one, each);
                if moment == Moment::HalfRead {
                    assert!(!ended.success(), "{ended}");
                    assert_eq!((found > 0, found < 60), (each, true), "{found} files");
                }
            }
        }
    });
}

fn unpack(one: &Fixture, each: bool) -> Child {
    let archive = one.scratch.join("a.tar");
    let mut command = unpack_command(one, each, archive.as_os_str());
    command.spawn().expect("started")
}

fn unpack_command(one: &Fixture, each: bool, archive: &OsStr) -> Command {
    let words = ["unpack".as_ref(), archive].into_iter();
    let mut command = one
        .store
        .command(words.chain(each.then_some("--each".as_ref())));
    command.stderr(Stdio::null());
    command
}

/// Returns when the unpacking has read one half of the archive. With `each`, some files have also
/// appeared. The other half never comes.
fn unpack_half(one: &Fixture, each: bool) -> (Child, Option<ChildStdin>) {
    let archive = fs::read(one.scratch.join("a.tar")).expect("read");
    let mut command = unpack_command(one, each, "-".as_ref());
    let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
    let mut input = child.stdin.take().expect("it is piped");
    let half = &archive[..archive.len() / 2];
    input.write_all(half).expect("it reads");
    wait_until("the reader of the archive", || {
        let unread = rustix::io::ioctl_fionread(&input).expect("it is a pipe");
        unread == 0 && (!each || !files(&one.base).is_empty())
    });
    assert_eq!(look_while(&mut child, 1), 1, "it has ended");
    (child, Some(input))
}

/// Looks at the command `times` times, or until it ends. Returns how often.
fn look_while(command: &mut Child, times: usize) -> usize {
    let goes_on = |_: &usize| command.try_wait().expect("asked").is_none();
    (0..times).take_while(goes_on).count()
}

/// The numbers of the files that are there.
fn files(root: &Path) -> Vec<u32> {
    let is_there = |number: &u32| root.join(format!("tree/{number}/file")).exists();
    (1..=60).filter(is_there).collect()
}

/// Returns how many files are there.
fn check(one: &Fixture, each: bool) -> usize {
    let found = files(&one.base);
    if !each {
        let is_nothing = found.is_empty() && !one.base.join("tree").exists();
        assert!(is_nothing || found.len() == 60, "{found:?}");
    }
    for number in &found {
        let name = format!("tree/{number}/file");
        let [made, unpacked] =
            [one.scratch.path(), &one.base].map(|root| fs::read(root.join(&name)).expect("read"));
        assert!(made == unpacked, "{name} is not whole");
    }
    found.len()
}
