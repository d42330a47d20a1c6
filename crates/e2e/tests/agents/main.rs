//! What docs/agents.md shows, and the tools of `atomdir mcp` as a client of the protocol uses them.

mod container;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use atomdir_testing::documents::code_blocks;
use atomdir_testing::exit_code::NO_SUCH;
use atomdir_testing::{
    Fixture, binary, cached, capture_output, for_each_owner, shell, skip, tools_present,
};
use serde_json::Value;

/// The only program of the page that is not ours. It changes what its message asks for.
const AGENT: &str = r#"#!/bin/sh
case "$*" in
    *shorter*) echo short > page ;;
    *longer*) echo long > page; echo more > appendix ;;
    "") # A session: a hook, and a turn that is taken back.
        echo first > page
        sh -c "$(cat hook)"
        echo second > page
        mark=$(atomdir status | sed -n 's/.*\(turn-[0-9.]*\).*/\1/p' | head -n 1)
        atomdir rollback "$mark" ;;
    *) exit 9 ;;
esac
"#;

fn page() -> Vec<String> {
    code_blocks(include_str!("../../../../docs/agents.md"))
}

fn block(starts_with: &str) -> String {
    let mut found = page()
        .into_iter()
        .filter(|block| block.starts_with(starts_with));
    found
        .next()
        .unwrap_or_else(|| panic!("the page has no block that starts with {starts_with}"))
}

/// The server is beside the command, if it was built.
fn server(test: &str) -> Option<PathBuf> {
    let server = binary().with_file_name("atomdir-mcp");
    if !server.exists() {
        let how = "cargo build --manifest-path crates/mcp/Cargo.toml --target-dir target";
        skip(test, &format!("{} is not built: {how}", server.display()));
        return None;
    }
    Some(server)
}

#[test]
fn the_page_on_agents_holds() {
    for_each_owner("agents-page", |owner| {
        let fixture = Fixture::owned_by("agents-page", owner, "echo old > page");
        let (store, bin) = (&fixture.store, fixture.scratch.join("bin"));
        fs::create_dir(&bin).expect("made");
        fs::write(bin.join("agent"), AGENT).expect("written");
        shell(
            &bin,
            &format!("chmod 755 . agent; ln -s {} atomdir", binary().display()),
        );
        let run = |script: &str| {
            let script = script.replace("/srv/site", store.path().to_str().expect("text"));
            let mut command = Command::new("/bin/sh");
            store.user().dress(&mut command);
            let path = format!("{}:/usr/bin:/bin", bin.display());
            command.env("PATH", path).current_dir(store.path());
            capture_output(command.args(["-ec", &script])).expect(0)
        };
        let text = |name: &str| fs::read_to_string(store.path().join(name)).unwrap_or_default();
        run(&block("cd /srv/site"));
        assert_eq!(text("page"), "short\n");
        let shown = run(&block("atomdir run --on-success keep"));
        assert!(
            shown.text().contains("+long") && shown.text().contains("longer page"),
            "{shown}"
        );
        assert_eq!(
            (text("page"), text("appendix")),
            ("short\n".into(), String::new())
        );
        // The program of the test is in a directory for temporary files, of which it would see none.
        let confined = block("atomdir run --confine");
        let seen = format!("--confine --read {}", bin.display());
        let confined = confined.replace("--confine", &seen);
        run(&format!("mkdir ~/.agent\n{confined}"));

        let hook: Value = serde_json::from_str(&block("{\"hooks\"")).expect("settings are JSON");
        let hook = &hook["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"];
        run(&format!(
            "cat > hook <<'END'\n{}\nEND",
            hook.as_str().expect("a command")
        ));
        run(&block("atomdir run --view exact"));
        assert_eq!(text("page"), "first\n");
        store.assert_at_rest();
    });
}

#[test]
fn a_client_of_the_protocol_uses_every_tool() {
    const TEST: &str = "agents-client";
    if !tools_present(TEST, &["python3", "setpriv"]) || server(TEST).is_none() {
        return;
    }
    let Some(python) = cached(TEST, "python/bin/python") else {
        return;
    };
    let settings: Value = serde_json::from_str(&block("{\"mcpServers\"")).expect("JSON");
    let settings = &settings["mcpServers"]["atomdir"];
    assert_eq!(settings["command"], "atomdir");
    for_each_owner(TEST, |owner| {
        let fixture = Fixture::owned_by(TEST, owner, "true");
        let store = &fixture.store;
        let root = store.path().to_str().expect("text");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/client.py");
        let mut command = Command::new(&python);
        command.args([script, root]);
        let user = store.user();
        if !user.is_root() {
            // The client is root's, because others need not reach its packages.
            let mut environment = Command::new("env");
            user.dress(&mut environment);
            command
                .args(["env", "-i"])
                .args(capture_output(&mut environment).text().lines());
            command.args(["setpriv", &format!("--reuid={}", user.uid)]);
            command.args([&format!("--regid={}", user.gid), "--clear-groups"]);
        }
        command.arg(binary());
        let words = settings["args"].as_array().expect("a list").iter();
        let words = words.map(|word| word.as_str().expect("text").replace("/srv/site", root));
        command.args(words);
        capture_output(command.current_dir("/")).expect(0);
        store.assert_at_rest();
    });
}

#[test]
fn the_server_is_refused_where_no_store_is() {
    let fixture = Fixture::new("agents-none", "true");
    let mut command = Command::new(binary());
    command.current_dir(fixture.scratch.path()).arg("mcp");
    capture_output(&mut command)
        .expect(NO_SUCH)
        .says(&["no store"]);
}
