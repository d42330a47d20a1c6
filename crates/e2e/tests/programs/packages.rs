//! Package managers of two languages fetch from their registries.

use std::process::Command;

use atomdir_testing::{
    Owner, Scenario, Scratch, capture_output, for_each_owner, skip, tools_present,
};

use crate::network_environment;

/// Whether `check` reaches the registry as this user. If not, this reports the test as skipped.
fn reachable(test: &str, owner: Owner, check: &str) -> bool {
    let scratch = Scratch::new(test);
    let user = owner(scratch.path());
    let script = format!("{}{check}", network_environment());
    let mut command = Command::new("/bin/sh");
    user.dress(&mut command);
    let outcome = capture_output(command.current_dir("/").args(["-ec", &script]));
    if outcome.code != 0 {
        skip(
            test,
            &format!(
                "its registry cannot be reached as {}: {}",
                user.name,
                outcome.error_text().trim()
            ),
        );
    }
    outcome.code == 0
}

/// Compiled modules contain the time of their source. With SOURCE_DATE_EPOCH they contain its hash
/// instead, which is the same in both runs.
#[test]
fn python_virtual_environment() {
    const TEST: &str = "pip";
    if !tools_present(TEST, &["python3"]) {
        return;
    }
    let download = r#"python3 -m pip download -q --no-deps -d "$HOME" six"#;
    let script = format!(
        r#"{}
export SOURCE_DATE_EPOCH=1700000000 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
python3 -m venv env
./env/bin/pip install -q six==1.16.0 click==8.1.7 pyyaml==6.0.2
./env/bin/python -c 'import six, click, yaml; print(six.__version__, click.__file__, yaml.__version__)'
./env/bin/pip uninstall -q -y six
./env/bin/pip list
find env | wc -l
"#,
        network_environment()
    );
    for_each_owner(TEST, |owner| {
        if reachable(TEST, owner, download) {
            Scenario::shell(TEST, &script)
                .owned_by(owner)
                .runs_long()
                .same_output()
                .check();
        }
    });
}

#[test]
fn npm_install() {
    const TEST: &str = "npm";
    if !tools_present(TEST, &["node", "npm"]) {
        return;
    }
    let script = format!(
        r#"{}
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
npm install -s --ignore-scripts semver@7.6.3 mkdirp@3.0.1 chalk@4.1.2
./node_modules/.bin/semver 1.2.3 -i minor
node -e 'require("chalk"); console.log(require.resolve("chalk"))'
npm uninstall -s chalk
npm ls --all
"#,
        network_environment()
    );
    let prepare =
        r#"echo '{"name": "scenario", "version": "1.0.0", "private": true}' > package.json"#;
    for_each_owner(TEST, |owner| {
        if reachable(TEST, owner, "npm view -s semver@7.6.3 version") {
            Scenario::shell(TEST, &script)
                .owned_by(owner)
                .runs_long()
                .prepare(prepare)
                .same_output()
                .check();
        }
    });
}
