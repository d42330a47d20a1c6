//! A plain directory replaces the view here: it is bound in the same way.

use super::*;
use atomdir::hosting::sync;
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsString;
use std::fs;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// A timeout kills all descendants of this process, so these tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct Scene {
    directory: PathBuf,
    binding: ViewBinding,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let alone = sync::lock(&ALONE);
        let directory = std::env::temp_dir()
            .canonicalize()
            .unwrap()
            .join(format!("atomdir-enter-{name}-{}", std::process::id()));
        for side in ["base", "view"] {
            fs::create_dir_all(directory.join(side).join("inner")).unwrap();
            fs::write(directory.join(side).join("inner/file"), side).unwrap();
        }
        Scene {
            binding: ViewBinding {
                base: directory.join("base"),
                view: Tree::Exact(fs::File::open(directory.join("view")).unwrap().into()),
                directory: "inner".into(),
                sealing: None,
                may_be_unbound: false,
                also: Vec::new(),
                around: Around::default(),
            },
            directory,
            _alone: alone,
        }
    }

    fn run(&self, command: &[&str], timeout: Option<Duration>) -> Result<Ended, EnterError> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let environment = [("OUT", self.directory.join("out").into())];
        start(&self.binding, &command, &environment, timeout, None)?.wait()
    }

    fn shell(&self, script: &str) -> Ended {
        self.run(&["sh", "-c", script], None).unwrap()
    }

    fn take_written(&self) -> String {
        let path = self.directory.join("out");
        let written = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        written
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn command_sees_the_view_at_the_stores_path() {
    let scene = Scene::new("view");
    let base = scene.binding.base.display();
    let script = format!("pwd > $OUT; cat file {base}/inner/file >> $OUT; echo > new; exit 7");
    assert_eq!(scene.shell(&script), Ended::Exited(7));
    assert_eq!(scene.take_written(), format!("{base}/inner\nviewview"));
    assert!(scene.directory.join("view/inner/new").exists());
    assert!(!scene.binding.base.join("inner/new").exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(&base.to_string()),
        "the mount is seen outside"
    );
}

#[test]
fn command_inherits_the_signal_mask_and_its_death_is_reported() {
    let scene = Scene::new("signals");
    scene.shell("grep SigBlk /proc/self/status > $OUT");
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(own.contains(&scene.take_written()));
    let killed = scene.shell("kill -9 $$");
    assert_eq!(killed, Ended::Killed { signal: 9 });
    assert_eq!(killed.exit_code(), 137);
}

#[test]
fn missing_and_unexecutable_commands_give_different_errors() {
    let mut scene = Scene::new("errors");
    let none = scene.run(&["atomdir-no-such-program"], None);
    assert!(
        matches!(none, Err(EnterError::NoSuchProgram { .. })),
        "{none:?}"
    );
    let not_executable = scene.run(&["./file"], None);
    assert!(
        matches!(not_executable, Err(EnterError::NotExecutable { .. })),
        "{not_executable:?}"
    );
    scene.binding.directory = "elsewhere".into();
    match scene.run(&["true"], None) {
        Err(EnterError::SetUp { failure, .. }) => {
            assert_eq!(
                (failure.step, failure.errno),
                (Step::ChangeDirectory, Errno::NOENT)
            );
        }
        other => panic!("{other:?}"),
    }
    let file = fs::File::open(scene.directory.join("view/inner/file")).unwrap();
    scene.binding.view = Tree::Exact(file.into());
    match scene.run(&["true"], None) {
        Err(EnterError::SetUp { failure, .. }) => assert_eq!(failure.step, Step::Bind),
        other => panic!("{other:?}"),
    }
}

#[test]
fn timeout_kills_all_descendants_of_the_command() {
    let scene = Scene::new("timeout");
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ >> $OUT; while :; do sleep 1000; done' &
        (sleep 1000 & echo $! >> $OUT)
        echo $$ >> $OUT; exec sleep 1000";
    let mut timeout = Duration::from_millis(100);
    let processes: Vec<i32> = loop {
        let ended = scene.run(&["sh", "-c", script], Some(timeout));
        assert_eq!(ended.unwrap(), Ended::TimedOut);
        let written = scene.take_written();
        if written.lines().count() == 3 {
            break written.lines().map(|line| line.parse().unwrap()).collect();
        }
        // The command was killed before it had started everything.
        timeout *= 2;
    };
    for process in processes {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let gone = test_kill_process(Pid::from_raw(process).unwrap()).is_err();
        assert!(gone || status.contains(") Z "), "{process} lives: {status}");
    }
}
