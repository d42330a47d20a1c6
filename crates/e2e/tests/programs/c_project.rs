//! A C project from its Debian source package is unpacked, configured, compiled on two
//! processors and tested by its own tests, all in one transaction.

use atomdir_testing::{Scenario, Scratch, debian_source, full_tier, skip, tools_present};

#[test]
fn configure_make_and_check() {
    const TEST: &str = "c-project";
    if !tools_present(TEST, &["apt-get", "dpkg-source", "gcc", "make", "xz"]) {
        return;
    }
    let scratch = Scratch::new(TEST);
    // A configuration with autoconf, as gzip's, runs for half a minute each time.
    let package = if full_tier() { "gzip" } else { "zlib" };
    let archive = match debian_source(&scratch, package) {
        Ok(archive) => archive,
        Err(outcome) => return skip(TEST, &format!("no source of {package}: {outcome}")),
    };
    let script = format!(
        r#"
tar xf '{}' --no-same-owner --strip-components=1
./configure --prefix=/usr > configure.out
make -j2 > /dev/null
make check > check.out 2>&1
grep -E '^# |OK|tests? ' check.out
make install DESTDIR="$PWD/installed" > /dev/null
find installed -type f | LC_ALL=C sort | xargs sha256sum
make clean > /dev/null
"#,
        archive.display()
    );
    // The logs contain the compiler's temporary names.
    Scenario::shell(TEST, &script)
        .same_output()
        .runs_long()
        .without("config.log")
        .without("configure.log")
        .check_for_each_owner();
}
