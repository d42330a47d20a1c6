//! Cargo builds and tests a package with a dependency in a directory, without a registry.

use std::path::PathBuf;
use std::process::Command;

use atomdir_testing::{Scenario, Scratch, User, capture_output, skip, tools_present};

const PACKAGE: &str = r#"
mkdir -p src tests greeting/src
cat > Cargo.toml <<'END'
[package]
name = "hello"
version = "0.1.0"
edition = "2021"

[dependencies]
greeting = { path = "greeting" }
END
cat > greeting/Cargo.toml <<'END'
[package]
name = "greeting"
version = "0.1.0"
edition = "2021"
END
cat > src/main.rs <<'END'
fn main() {
    println!("{}", greeting::greet("world"));
}
END
cat > greeting/src/lib.rs <<'END'
pub fn greet(name: &str) -> String {
    format!("Hello, {name}")
}
END
cat > tests/greets.rs <<'END'
#[test]
fn greets() {
    assert!(greeting::greet("you").ends_with("you"));
}
END
"#;

const BUILD_AND_TEST: &str = r#"
cargo build
./target/debug/hello
cargo test | grep 'test result' | sed 's/finished.*//'
"#;

/// Cargo compiles what has a later time than its last result.
const EDIT_AND_REBUILD: &str = r#"
sed -i s/Hello/Goodbye/ greeting/src/lib.rs
cargo build
./target/debug/hello
cargo test | grep 'test result' | sed 's/finished.*//'
find target/debug/deps -type f -printf '%p %n\n' | LC_ALL=C sort
"#;

/// What was committed is complete for cargo: it compiles nothing again.
const IS_FRESH: &str = r#"
said=$(cargo build --verbose 2>&1; cargo test --no-run --verbose 2>&1)
case $said in *Dirty*|*Compiling*) echo "$said" >&2; exit 1;; esac
echo "$said" | grep Fresh
./target/debug/hello
"#;

/// Finds a toolchain that ordinary users can run, or reports the test as skipped. That of
/// rustup is often in root's closed home. Then the scratch directory gets links to its files.
fn toolchain(test: &str, scratch: &Scratch) -> Option<PathBuf> {
    if !tools_present(test, &["cargo", "rustc", "gcc"]) {
        return None;
    }
    let found = capture_output(Command::new("rustc").args(["--print", "sysroot"])).expect(0);
    let root = PathBuf::from(found.text().trim());
    let mut reach = Command::new("/bin/sh");
    User::ordinary(scratch.path()).dress(&mut reach);
    reach.args(["-c", "test -x \"$0\"/bin/cargo && test -x \"$0\"/bin/rustc"]);
    if capture_output(reach.arg(&root).current_dir("/")).code == 0 {
        return Some(root);
    }
    let linked = scratch.join("toolchain");
    std::fs::create_dir(&linked).expect("the scratch directory takes it");
    let mut link = Command::new("cp");
    link.arg("-al").arg(root.join("bin")).arg(root.join("lib"));
    let outcome = capture_output(link.arg(&linked));
    if outcome.code != 0 {
        let reason = format!("ordinary users cannot reach {}: {outcome}", root.display());
        skip(test, &reason);
        return None;
    }
    Some(linked)
}

/// Runs the script in a transaction and in a plain directory that start with the same tree.
fn check(test: &str, prepare: &[&str], script: &str) {
    let scratch = Scratch::new(test);
    let Some(toolchain) = toolchain(test, &scratch) else {
        return;
    };
    let with_cargo = |script: &str| {
        let path = toolchain.join("bin");
        format!(
            "export PATH={}:$PATH CARGO_NET_OFFLINE=true\n{script}",
            path.display()
        )
    };
    let scenario = Scenario::shell(test, &with_cargo(script))
        .same_output()
        .runs_long()
        // Names with random parts, also in archives.
        .without("target/debug/incremental")
        .without("target/debug/deps")
        // Cargo writes these files with their entries in any order.
        .without("target/.rustc_info.json")
        .without("target/debug/hello.d")
        .afterwards(&with_cargo(IS_FRESH));
    let prepared = prepare.iter();
    prepared
        .fold(scenario, |scenario, one| scenario.prepare(&with_cargo(one)))
        .check_for_each_owner();
}

#[test]
fn cargo_builds_tests_and_builds_again() {
    let script = format!("{BUILD_AND_TEST}{EDIT_AND_REBUILD}");
    check("cargo", &[PACKAGE], &script);
}

/// The files that cargo has built have several names, so an ordinary user's overlay refuses to
/// change them.
#[test]
fn cargo_builds_on_what_it_built_before() {
    check("cargo-again", &[PACKAGE, BUILD_AND_TEST], EDIT_AND_REBUILD);
}
