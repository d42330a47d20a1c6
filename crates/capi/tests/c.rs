//! The library as C programs use it. It is installed into a scratch directory, and the programs in
//! `programs/` are compiled against it, as C and as C++.

use atomdir_testing::documents::{assert_contains_code, code_blocks};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, Scratch, User, binary, capture_output, copy_tree, debian_source,
    for_each_owner, look, mounts, only_in_full_tier, shell, skip, tools_present, users_can_mount,
};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds and installs the library once, with the profile of these tests. Returns the prefix.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<(Scratch, Child, PathBuf)> = OnceLock::new();
    let (_, _, prefix) = INSTALLED.get_or_init(|| {
        let scratch = Scratch::new("capi");
        let guard = remove_at_end(scratch.path());
        let prefix = scratch.join("usr");
        let program = std::env::current_exe().expect("this program's path");
        let mut folders = program.ancestors().skip(2);
        let folder = folders.next().expect("it is in a target directory");
        let target = folder.parent().expect("it is in a target directory");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(profile) => profile,
        };
        let mut install = Command::new(here().join("install.sh"));
        install.arg(&prefix).arg(profile);
        install.env("CARGO_TARGET_DIR", target);
        capture_output(&mut install).expect(0);
        (scratch, guard, prefix)
    });
    prefix
}

/// Starts a guard process that removes the directory when this process ends, even if it is killed: a
/// static is never dropped. The guard waits until its input is closed.
fn remove_at_end(directory: &Path) -> Child {
    let remove = "trap '' HUP INT TERM; read end
        [ -n \"${ATOMDIR_KEEP+kept}\" ] || rm -rf -- \"$1\"";
    let mut guard = Command::new("/bin/sh");
    guard.args(["-c", remove, "sh"]).arg(directory);
    guard.stdin(Stdio::piped()).stdout(Stdio::null());
    guard.stderr(Stdio::null()).spawn().expect("a shell starts")
}

/// Compiles a program of `programs/`; a warning is an error. Returns its path.
fn compile(compiler: &[&str], name: &str, link: &[&str], scratch: &Scratch) -> PathBuf {
    let prefix = installed();
    let program = scratch.join(format!("{name}-{}", compiler[0]));
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]);
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-D_GNU_SOURCE"]);
    command.arg("-I").arg(prefix.join("include"));
    command.arg("-o").arg(&program);
    command.arg(here().join(format!("tests/programs/{name}.c")));
    command.arg("-L").arg(prefix.join("lib"));
    command.args(link).arg("-pthread");
    capture_output(&mut command).expect(0);
    program
}

const SHARED: &[&str] = &["-latomdir"];
const STATIC: &[&str] = &["-l:libatomdir.a", "-lgcc_s", "-lm", "-ldl"];

/// Runs a program as a user. It must succeed.
fn run(user: &User, program: &Path, arguments: &[&str]) {
    capture_output(&mut command(user, program, arguments)).expect(0);
}

/// A command that runs a program as a user, with the library and the command `atomdir` in its paths.
fn command(user: &User, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    user.dress(&mut command);
    let folder = binary().parent().expect("it is in a directory").to_owned();
    let path = std::env::var("PATH").expect("there is a PATH");
    command.env("PATH", format!("{}:{path}", folder.display()));
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    command.current_dir("/").args(arguments);
    command
}

#[test]
fn exported_symbols_match_the_header_and_have_versions() {
    if !tools_present(
        "exported_symbols_match_the_header_and_have_versions",
        &["cc", "nm"],
    ) {
        return;
    }
    let header = std::fs::read_to_string(here().join("include/atomdir.h")).expect("read");
    let mut in_comment = false;
    let mut declared = BTreeSet::new();
    for line in header.lines() {
        in_comment |= line.trim_start().starts_with("/*");
        let code = if in_comment { "" } else { line };
        in_comment &= !line.contains("*/");
        for (at, _) in code.match_indices("atomdir_") {
            let name = code[at..].split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let name = name.clone().next().unwrap_or_default();
            if code[at + name.len()..].starts_with('(') {
                declared.insert(name.to_owned());
            }
        }
    }
    assert!(declared.len() > 50, "{declared:?}");
    let library = installed().join("lib/libatomdir.so");
    let symbols = capture_output(
        Command::new("nm")
            .arg("-D")
            .arg("--defined-only")
            .arg(library),
    );
    let symbols = symbols.expect(0).text();
    let exported = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    let exported: BTreeSet<String> = exported
        .filter(|name| *name != "ATOMDIR_0")
        .map(|name| match name.strip_suffix("@@ATOMDIR_0") {
            Some(name) => name.to_owned(),
            None => panic!("{name} is exported without a version"),
        })
        .collect();
    assert_eq!(declared, exported);
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(installed().join("lib/libatomdir.so"))
        .output();
    let dynamic = dynamic.expect("readelf runs").stdout;
    assert!(String::from_utf8_lossy(&dynamic).contains("[libatomdir.so.0]"));
    let described = std::fs::read_to_string(installed().join("lib/pkgconfig/atomdir.pc"));
    let described = described.expect("read");
    assert!(
        described.contains("-latomdir") && !described.contains('@'),
        "{described}"
    );
}

#[test]
fn programs_in_c_and_cpp_use_the_library_in_their_own_process() {
    let name = "programs_in_c_and_cpp_use_the_library_in_their_own_process";
    if !tools_present(name, &["cc", "c++", "gcc"]) {
        return;
    }
    let scratch = Scratch::new("capi-embedded");
    let programs = [
        compile(&["cc", "-std=c99"], "library", SHARED, &scratch),
        compile(
            &["c++", "-x", "c++", "-fpermissive"],
            "library",
            SHARED,
            &scratch,
        ),
        compile(&["gcc", "-std=c11"], "library", STATIC, &scratch),
    ];
    for_each_owner(name, |owner| {
        for program in &programs {
            let fixture = Fixture::owned_by("capi-embedded", owner, "");
            let base = fixture.base.to_str().expect("it is text");
            run(fixture.store.user(), program, &[base, "embedded"]);
            let committed = std::fs::read(fixture.base.join("parent")).expect("read");
            assert_eq!(committed, b"2");
        }
    });
}

#[test]
fn programs_link_with_the_flags_of_pkg_config() {
    let name = "programs_link_with_the_flags_of_pkg_config";
    if !tools_present(name, &["cc", "pkg-config"]) {
        return;
    }
    let described = installed().join("lib/pkgconfig");
    let scratch = Scratch::new("capi-pkg-config");
    for is_static in [&[][..], &["--static"]] {
        let mut ask = Command::new("pkg-config");
        ask.args(is_static).args(["--cflags", "--libs", "atomdir"]);
        ask.env("PKG_CONFIG_PATH", &described);
        let flags = capture_output(&mut ask).expect(0).text();
        let program = scratch.join(format!("library{}", is_static.concat()));
        let mut compile = Command::new("cc");
        // The compiler's name for pkg-config's option `--static`.
        compile.args(is_static.iter().map(|_| "-static"));
        compile.arg("-D_GNU_SOURCE").arg("-o").arg(&program);
        compile.arg(here().join("tests/programs/library.c"));
        compile.args(flags.split_whitespace()).arg("-pthread");
        capture_output(&mut compile).expect(0);
        let fixture = Fixture::new("capi-pkg-config", "");
        let base = fixture.base.to_str().expect("it is text");
        run(fixture.store.user(), &program, &[base, "embedded"]);
    }
}

#[test]
fn a_c_program_uses_the_library_through_the_service() {
    let name = "a_c_program_uses_the_library_through_the_service";
    if !tools_present(name, &["cc"]) {
        return;
    }
    let scratch = Scratch::new("capi-service");
    let program = compile(&["cc", "-std=c99"], "library", SHARED, &scratch);
    for_each_owner(name, |owner| {
        let fixture = Fixture::owned_by("capi-service", owner, "");
        fixture.store.call(["service", "start"]).expect(0);
        let base = fixture.base.to_str().expect("it is text");
        run(fixture.store.user(), &program, &[base, "service"]);
        let committed = std::fs::read(fixture.base.join("parent")).expect("read");
        assert_eq!(committed, b"2");
    });
}

#[test]
fn a_c_program_reads_history_and_resolves_conflicts() {
    let name = "a_c_program_reads_history_and_resolves_conflicts";
    run_both_ways(name, "past");
}

#[test]
fn a_c_program_confirms_pins_and_relabels_commits() {
    let name = "a_c_program_confirms_pins_and_relabels_commits";
    run_both_ways(name, "annotating");
}

/// Runs a program in a store without a service, and in one with a service.
fn run_both_ways(test: &str, program: &str) {
    if !tools_present(test, &["cc"]) {
        return;
    }
    let scratch = Scratch::new(&format!("capi-{program}"));
    let compiled = compile(&["cc", "-std=c99"], program, SHARED, &scratch);
    for_each_owner(test, |owner| {
        for way in ["embedded", "service"] {
            let fixture = Fixture::owned_by(&format!("capi-{program}"), owner, "");
            if way == "service" {
                fixture.store.call(["service", "start"]).expect(0);
            }
            let base = fixture.base.to_str().expect("it is text");
            run(fixture.store.user(), &compiled, &[base, way]);
        }
    });
}

/// If the service is killed, the program's calls fail, none of its changes are left, and it can open
/// the store again.
#[test]
fn a_c_program_goes_on_after_the_service_is_killed() {
    let name = "a_c_program_goes_on_after_the_service_is_killed";
    if !tools_present(name, &["cc"]) {
        return;
    }
    let scratch = Scratch::new("capi-orphan");
    let program = compile(&["cc", "-std=c99"], "orphan", SHARED, &scratch);
    for_each_owner(name, |owner| {
        let fixture = Fixture::owned_by("capi-orphan", owner, "");
        fixture.store.call(["service", "start"]).expect(0);
        let base = fixture.base.to_str().expect("it is text");
        let mut command = command(fixture.store.user(), &program, &[base]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut running = command.spawn().expect("it starts");
        let mut line = String::new();
        let output = running.stdout.take().expect("it is a pipe");
        let read = BufReader::new(output).read_line(&mut line);
        assert_eq!((read.expect("read"), line.as_str()), (6, "ready\n"));
        assert!(fixture.store.kill_service());
        let mut input = running.stdin.take().expect("it is a pipe");
        input.write_all(b"dead\n").expect("it reads");
        let output = running.wait_with_output().expect("it ends");
        Outcome::from_output("orphan".to_owned(), output).expect(0);
        assert!(!fixture.base.join("lost").exists());
        assert_eq!(
            std::fs::read(fixture.base.join("kept")).expect("read"),
            b"1"
        );
    });
}

#[test]
fn code_in_the_documents_compiles_and_runs() {
    let name = "code_in_the_documents_compiles_and_runs";
    if !tools_present(name, &["cc"]) {
        return;
    }
    let source = include_str!("programs/documents.c");
    let header = include_str!("../include/atomdir.h");
    let head = header.split("*/").next().expect("it begins with a comment");
    let head = head.replace("\n *", "\n");
    let document = code_blocks(include_str!("../../../docs/c.md"));
    let code = document.iter().filter(|block| block.contains(';'));
    let blocks: Vec<String> = code_blocks(&head)
        .into_iter()
        .chain(code.cloned())
        .collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        assert_contains_code(source, &block.replace("\"/srv/data\"", "directory"));
    }
    let scratch = Scratch::new("capi-documents");
    let program = compile(&["cc", "-std=c99"], "documents", SHARED, &scratch);
    let fixture = Fixture::new("capi-documents", "mkdir conf; echo 1 > state.new");
    let base = fixture.base.to_str().expect("it is text");
    run(fixture.store.user(), &program, &[base]);
    for (path, contents) in [("conf/a", "1\n"), ("state", "1\n"), ("version", "2")] {
        let found = std::fs::read_to_string(fixture.base.join(path)).expect("read");
        assert_eq!(found, contents, "{path}");
    }
}

/// zlib's minigzip replaces files by compressed ones, and stops at the first error. With three calls
/// around its unchanged `main`, it replaces all of them or none.
#[test]
fn three_calls_make_an_unchanged_program_atomic() {
    let name = "three_calls_make_an_unchanged_program_atomic";
    if !tools_present(name, &["cc", "apt-get", "tar"]) {
        return;
    }
    let scratch = Scratch::new("capi-around");
    let archive = match debian_source(&scratch, "zlib") {
        Ok(archive) => archive,
        Err(outcome) => return skip(name, &format!("no source of zlib: {outcome}")),
    };
    let prefix = installed();
    let build = format!(
        "tar xf {archive} --strip-components=1 && mkdir objects && cd objects
cc -w -DHAVE_UNISTD_H -c ../*.c
cc -w -DHAVE_UNISTD_H -I.. -o ../plain ../test/minigzip.c *.o
cc -w -DHAVE_UNISTD_H -I.. -Dmain=unchanged_main -c ../test/minigzip.c
cc -D_GNU_SOURCE -I{prefix}/include -o ../around {programs}/around.c *.o -L{prefix}/lib -latomdir",
        archive = archive.display(),
        prefix = prefix.display(),
        programs = here().join("tests/programs").display(),
    );
    shell(scratch.path(), &build);
    let fixture = Fixture::new("capi-around", "seq 1 10000 > a; seq 7 70000 > b; : > empty");
    let copy = scratch.join("copy");
    copy_tree(&fixture.base, &copy);
    let same_as_the_copy = |what| {
        assert_equal(
            what,
            &look(&copy),
            &look(&fixture.base),
            &CompareOptions::alike(),
        );
    };
    let base = fixture.base.to_str().expect("it is text");
    let user = fixture.store.user();
    let all = ["a", "b", "empty"].map(|file| format!("{base}/{file}"));
    let with = |files: &[String]| {
        let files = files.iter().map(String::as_str);
        let arguments: Vec<&str> = [base].into_iter().chain(files).collect();
        capture_output(&mut command(user, &scratch.join("around"), &arguments))
    };
    // The last file is missing, so the program stops after it has replaced the others.
    with(&[&all[..], &[format!("{base}/missing")]].concat()).expect(1);
    same_as_the_copy("after a failure");
    with(&all).expect(0);
    shell(&copy, "../plain a b empty");
    same_as_the_copy("after a success");
}

#[test]
fn three_calls_put_only_their_thread_into_a_transaction() {
    let name = "three_calls_put_only_their_thread_into_a_transaction";
    if !tools_present(name, &["cc"]) {
        return;
    }
    let scratch = Scratch::new("capi-here");
    let program = compile(&["cc", "-std=c99"], "here", SHARED, &scratch);
    {
        let fixture = Fixture::new("capi-here", "");
        let base = fixture.base.to_str().expect("it is text");
        run(fixture.store.user(), &program, &[base]);
        let over = mounts()
            .into_iter()
            .find(|mount| mount.point == fixture.base);
        assert!(over.is_none(), "{over:?} was mounted outside the thread");
    }
    {
        // Run the program in namespaces of its own, as in a container.
        let fixture = Fixture::new("capi-here", "");
        let base = fixture.base.to_str().expect("it is text");
        let program = program.to_str().expect("it is text");
        let unshare = Path::new("unshare");
        let arguments = ["-rm", "--propagation", "slave", program, base];
        run(fixture.store.user(), unshare, &arguments);
    }
    // A process with several threads cannot get a user namespace, in which it could mount.
    let refused = compile(&["cc", "-std=c99"], "refused", SHARED, &scratch);
    let named = refused.to_str().expect("it is text");
    let fixture = Fixture::new("capi-refused", "");
    let base = fixture.base.to_str().expect("it is text");
    let unshare = Path::new("unshare");
    run(fixture.store.user(), unshare, &["-r", named, base]);
    if !users_can_mount(name) {
        return;
    }
    for program in [&refused, &program] {
        let fixture = Fixture::owned_by("capi-here-user", User::ordinary, "");
        let base = fixture.base.to_str().expect("it is text");
        run(fixture.store.user(), program, &[base]);
        fixture.store.assert_at_rest();
    }
}

#[test]
fn cargo_c_installs_the_library() {
    let name = "cargo_c_installs_the_library";
    if !only_in_full_tier(name) {
        return;
    }
    let found = Command::new("cargo")
        .args(["cinstall", "--version"])
        .output();
    if !found.is_ok_and(|found| found.status.success()) {
        return skip(name, "cargo-c is not installed");
    }
    let scratch = Scratch::new("capi-cargo-c");
    let mut install = Command::new("cargo");
    install.args([
        "cinstall",
        "--locked",
        "-p",
        "atomdir-capi",
        "--prefix",
        "/usr",
    ]);
    install.arg("--profile").arg("dev");
    install.arg("--destdir").arg(scratch.join("installed"));
    install.arg("--target-dir").arg(scratch.join("target"));
    capture_output(install.current_dir(here())).expect(0);
    let soname = "readelf -d $(find installed -name libatomdir.so) | grep -F '[libatomdir.so.0]'";
    shell(scratch.path(), soname);
}
