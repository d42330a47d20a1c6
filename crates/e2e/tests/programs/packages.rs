//! Package managers of two languages fetch from their registries.

use std::process::Command;

use atomdir_testing::{Scenario, capture_output, skip, tools_present};

use crate::network_environment;

/// Whether the registry answers. If not, this reports the test as skipped.
fn reachable(test: &str, check: &str) -> bool {
    let script = format!("{}{check}", network_environment());
    let outcome = capture_output(Command::new("/bin/sh").args(["-ec", &script]));
    if outcome.code != 0 {
        skip(
            test,
            &format!(
                "its registry cannot be reached: {}",
                outcome.error_text().trim()
            ),
        );
    }
    outcome.code == 0
}

/// Compiled modules contain their source's time, unless an option makes it the hash.
#[test]
fn python_virtual_environment() {
    const TEST: &str = "pip";
    if !tools_present(TEST, &["python3"])
        || !reachable(
            TEST,
            "python3 -m pip download -q --no-deps -d \"$(mktemp -d)\" six",
        )
    {
        return;
    }
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
    Scenario::shell(TEST, &script).same_output().check();
}

#[test]
fn npm_install() {
    const TEST: &str = "npm";
    if !tools_present(TEST, &["node", "npm"])
        || !reachable(TEST, "npm view -s semver@7.6.3 version")
    {
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
    Scenario::shell(TEST, &script)
        .prepare(
            r#"echo '{"name": "scenario", "version": "1.0.0", "private": true}' > package.json"#,
        )
        .same_output()
        .check();
}
