//! The library as C programs use it: it is installed into a scratch directory, and the programs in
//! `programs/` are compiled against it, as C and as C++.

use atomdir_testing::{
    Fixture, Scratch, User, binary, capture_output, for_each_owner, full_tier, mounts, skip,
    tools_present, users_can_mount,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library is built and installed once, with the profile of these tests.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, prefix) = INSTALLED.get_or_init(|| {
        let scratch = Scratch::new("capi");
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
        (scratch, prefix)
    });
    prefix
}

/// Compiles a program of `programs/` without a warning. Returns its path.
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

/// Runs a program as a user. It finds the library, and the command.
fn run(user: &User, program: &Path, arguments: &[&str]) {
    let mut command = Command::new(program);
    user.dress(&mut command);
    let folder = binary().parent().expect("it is in a directory").to_owned();
    let path = std::env::var("PATH").expect("there is a PATH");
    command.env("PATH", format!("{}:{path}", folder.display()));
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    command.current_dir("/").args(arguments);
    capture_output(&mut command).expect(0);
}

#[test]
fn the_header_the_library_and_its_versions_agree() {
    if !tools_present(
        "the_header_the_library_and_its_versions_agree",
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
fn pkg_config_names_what_a_program_links_with() {
    let name = "pkg_config_names_what_a_program_links_with";
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
        // The compiler's own option for programs without shared libraries.
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
fn a_c_program_uses_the_library_by_the_service() {
    let name = "a_c_program_uses_the_library_by_the_service";
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
fn three_calls_put_one_thread_into_a_transaction() {
    let name = "three_calls_put_one_thread_into_a_transaction";
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
        // In namespaces that were made for the program, as in a container.
        let fixture = Fixture::new("capi-here", "");
        let base = fixture.base.to_str().expect("it is text");
        let program = program.to_str().expect("it is text");
        let unshare = Path::new("unshare");
        let arguments = ["-rm", "--propagation", "slave", program, base];
        run(fixture.store.user(), unshare, &arguments);
    }
    // A user namespace does not suffice, since it has no way back into the mount namespace.
    let program = compile(&["cc", "-std=c99"], "refused", SHARED, &scratch);
    let named = program.to_str().expect("it is text");
    let fixture = Fixture::new("capi-refused", "");
    let base = fixture.base.to_str().expect("it is text");
    let unshare = Path::new("unshare");
    run(fixture.store.user(), unshare, &["-r", named, base]);
    // An ordinary user is refused.
    if !users_can_mount(name) {
        return;
    }
    let fixture = Fixture::owned_by("capi-refused", User::ordinary, "");
    let base = fixture.base.to_str().expect("it is text");
    run(fixture.store.user(), &program, &[base]);
}

#[test]
fn cargo_c_builds_the_library() {
    let name = "cargo_c_builds_the_library";
    if !full_tier() {
        return;
    }
    let found = Command::new("cargo").args(["cbuild", "--version"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        return skip(name, "cargo-c is not installed");
    }
    let scratch = Scratch::new("capi-cargo-c");
    let mut build = Command::new("cargo");
    build.args(["cbuild", "--locked", "-p", "atomdir-capi", "--target-dir"]);
    build.arg(scratch.path()).current_dir(here());
    capture_output(&mut build).expect(0);
}
