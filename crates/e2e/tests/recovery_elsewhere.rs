//! After the service was killed, recovery keeps what outside writers did after a commit, and opens
//! detached transactions again, from whatever mount namespace it looks at the store.

#![cfg(test)]

use std::fs;
use std::process::Command;

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    LoopDevice, Scratch, Store, User, binary, capture_output, look, shell, skip, tools_present,
};

/// From where the first command after a kill comes.
struct Elsewhere {
    name: &'static str,
    needs: &'static [&'static str],
    /// Runs `$ATOMDIR -C "$BASE" list`. The base lies in a file system on the device `$DEVICE`,
    /// mounted at `$POINT`.
    list: &'static str,
    /// Whether it is another boot as far as the service can see.
    is_another_boot: bool,
}

const ELSEWHERE: [Elsewhere; 8] = [
    Elsewhere {
        name: "here",
        needs: &[],
        list: "$ATOMDIR -C $BASE list",
        is_another_boot: false,
    },
    Elsewhere {
        name: "mount namespace",
        needs: &[],
        list: "unshare -m $ATOMDIR -C $BASE list",
        is_another_boot: false,
    },
    Elsewhere {
        name: "mount namespace without /sys",
        needs: &[],
        list: "unshare -m sh -c 'mount -t tmpfs none /sys; exec $ATOMDIR -C $BASE list'",
        is_another_boot: false,
    },
    Elsewhere {
        name: "sandbox",
        needs: &["bwrap"],
        list: "bwrap --dev-bind / / --tmpfs /var/tmp/. --bind $POINT $POINT $ATOMDIR -C $BASE list",
        is_another_boot: false,
    },
    Elsewhere {
        name: "bind mount",
        needs: &[],
        list: "mkdir $POINT/other; mount --bind $BASE $POINT/other
            $ATOMDIR -C $POINT/other list; code=$?
            $ATOMDIR -C $POINT/other service stop --keep; umount $POINT/other; exit $code",
        is_another_boot: false,
    },
    Elsewhere {
        name: "changed mount options",
        needs: &[],
        list: "mount -o remount,noatime $POINT && $ATOMDIR -C $BASE list",
        is_another_boot: false,
    },
    Elsewhere {
        name: "mounted again",
        needs: &[],
        list: "until umount $POINT; do sleep 0.1; done; mount $DEVICE $POINT
            $ATOMDIR -C $BASE list",
        is_another_boot: false,
    },
    Elsewhere {
        name: "another boot",
        needs: &[],
        list: "echo 01234567-89ab-cdef-0123-456789abcdef > $POINT/boot
            unshare -m --pid --fork --kill-child --mount-proc sh -c '
                mount --bind $POINT/boot /proc/sys/kernel/random/boot_id
                $ATOMDIR -C $BASE list'",
        is_another_boot: true,
    },
];

/// Recovery keeps outside changes and what is detached, whatever mounts it sees. Only after another
/// boot it applies the log again.
#[test]
fn recovery_does_not_depend_on_mounts() {
    let test = "recovery_does_not_depend_on_mounts";
    if !tools_present(test, &["mkfs.ext4", "losetup", "unshare"]) {
        return;
    }
    for elsewhere in &ELSEWHERE {
        if tools_present(test, elsewhere.needs) {
            recover_elsewhere(test, elsewhere);
        }
    }
}

fn recover_elsewhere(test: &str, elsewhere: &Elsewhere) {
    let scratch = Scratch::new("elsewhere");
    let Some(set_up) = LoopDevice::new(&scratch, "point", "mkfs.ext4 -q", 64) else {
        return skip(test, "no loop device can be set up here");
    };
    let LoopDevice { device, point } = &set_up;
    let base = point.join("base");
    shell(
        point,
        "cd ..; mkdir point/base; echo one > point/base/in-place",
    );
    let user = User::root(scratch.path());
    let store = Store::init(&base, &user);
    let view = store.begin_with(&["--message", "detached"]);
    fs::write(view.path.join("new"), "precious").expect("written");
    // The begin makes a checkpoint, so this is the first commit in the log.
    store
        .run("echo two > in-place; echo two > replaced; echo two > moved; mkdir d; echo two > d/f")
        .expect(0);
    store.run("echo two > carried").expect(0);
    shell(
        &base,
        "echo outside > carried; echo outside > in-place; echo outside > n; mv n replaced; mv moved elsewhere; rm -r d",
    );
    let before = look(&base);
    assert!(store.kill_service(), "{}: no service", elsewhere.name);
    let mut list = Command::new("sh");
    user.dress(&mut list);
    list.args(["-c", elsewhere.list]).env("ATOMDIR", binary());
    list.env("BASE", &base)
        .env("POINT", point)
        .env("DEVICE", device);
    let listed = capture_output(&mut list).expect(0);
    let name = elsewhere.name;
    match elsewhere.is_another_boot {
        false => {
            assert!(listed.text().contains("detached"), "{name}\n{listed}");
            assert_equal(name, &before, &look(&base), &CompareOptions::alike());
        }
        true => {
            let carried = fs::read_to_string(base.join("carried")).expect("read");
            assert_eq!(carried, "two\n", "the log has its contents");
        }
    }
    store.kill_service();
    drop(set_up);
}
