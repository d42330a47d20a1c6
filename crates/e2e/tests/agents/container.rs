//! What a container needs, as docs/agents.md says. bubblewrap makes one for an ordinary user: with a
//! user namespace, its own /dev, and only the capabilities that are named.

use std::path::Path;
use std::process::Command;

use atomdir_testing::{
    Scratch, User, binary, capture_output, for_each_owner, shell, tools_present,
};

/// Those that container engines give by themselves.
const CAPABILITIES: [&str; 6] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "SETGID",
    "SETUID",
];
const DEVICE: [&str; 3] = ["--dev-bind", "/dev/fuse", "/dev/fuse"];
const RIGHT: [&str; 2] = ["--cap-add", "CAP_SYS_ADMIN"];

fn container(user: &User, project: &Path, extra: &[&str], script: &str) -> Command {
    let mut command = Command::new("bwrap");
    user.dress(&mut command);
    command
        .args([
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
        ])
        .args([
            "--dev", "/dev", "--tmpfs", "/run", "--uid", "0", "--gid", "0",
        ])
        .args(
            CAPABILITIES
                .iter()
                .flat_map(|one| ["--cap-add".to_owned(), format!("CAP_{one}")]),
        )
        .args(["--bind"])
        .args([project, project])
        .args(extra)
        .args(["sh", "-c", script])
        .env_remove("XDG_RUNTIME_DIR")
        .env("A", binary())
        .current_dir(project);
    command
}

#[test]
fn a_container_needs_the_device_and_the_right_to_mount() {
    let name = "agents-container";
    if !tools_present(name, &["bwrap"]) {
        return;
    }
    for_each_owner(name, |owner| {
        let scratch = Scratch::new(name);
        let user = owner(scratch.path());
        // A container of root's would show nothing.
        if !user.is_root() {
            try_in_containers(&user, &scratch);
        }
    });
}

fn try_in_containers(user: &User, scratch: &Scratch) {
    let project = scratch.join("project");
    std::fs::create_dir(&project).expect("made");
    shell(&project, &format!("chown {}:{} .", user.uid, user.gid));
    let run = |extra: &[&str], script: &str| {
        capture_output(&mut container(user, &project, extra, script))
    };
    run(&[], "$A init").expect(0);
    let agent = "$A run -- sh -c 'echo new >> file'";
    run(&RIGHT, agent).expect(78).says(&["/dev/fuse"]);
    run(&DEVICE, agent).expect(78).says(&["CAP_SYS_ADMIN"]);
    assert!(!project.join("file").exists());
    let both = [&DEVICE[..], &RIGHT[..]].concat();
    for view in ["native", "exact"] {
        let script = format!("$A run --view {view} -- sh -c 'echo new >> file' && $A service stop");
        run(&both, &script).expect(0);
    }
    let text = std::fs::read_to_string(project.join("file")).expect("it is in the base");
    assert_eq!(text, "new\nnew\n");
}
