//! Making stores and finding them, on the real file system.

use atomdir::client::find_with;
use atomdir::{FindError, InitError, StoreLocation, Trust, adopt_with, find, init};
use atomdir_testing::{copy_tree, fresh_directory, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Scratch {
        let path = fresh_directory(parent, "stores");
        Scratch(path.canonicalize().expect("it exists"))
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("a new directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it exists").mode() & 0o7777
}

#[test]
fn a_directory_becomes_a_store_once_and_is_found_from_below() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let below = scratch.directory("site/a/b");
    let made = init(&site, None).unwrap();
    assert!(made.created);
    assert_eq!(mode(&made.store.control), 0o711);
    for private in ["header", "log", "lock"] {
        assert_eq!(
            mode(&made.store.control.join(private)) & 0o077,
            0,
            "{private}"
        );
    }

    let header = fs::read(made.store.control.join("header")).unwrap();
    let again = init(&site, None).unwrap();
    assert!(!again.created);
    assert_eq!(again.store, made.store);
    assert_eq!(fs::read(made.store.control.join("header")).unwrap(), header);

    let link = scratch.0.join("link");
    symlink(&below, &link).unwrap();
    let found = find(&link).unwrap();
    assert_eq!(found.root, site);
    assert_eq!(found.start, Path::new("a/b"));
    assert_eq!(StoreLocation::at(&site).unwrap(), made.store);
    assert!(matches!(
        StoreLocation::at(&below),
        Err(FindError::NoStore { .. })
    ));

    let error = find(&scratch.0).unwrap_err();
    assert!(matches!(error, FindError::NoStore { .. }), "{error}");
}

/// As after a crash between the two steps.
#[test]
fn an_interrupted_init_is_finished_by_the_next() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    fs::create_dir(site.join(".atomdir")).unwrap();
    let made = init(&site, None).unwrap();
    assert!(made.store.control.join("header").exists());
}

#[test]
fn stores_cannot_be_nested() {
    let scratch = Scratch::new();
    let outer = scratch.directory("outer");
    let inner = scratch.directory("outer/deep/inner");
    init(&inner, None).unwrap();
    match init(&outer, None).unwrap_err() {
        InitError::HoldsStore { store, .. } => assert_eq!(store, inner),
        error => panic!("{error}"),
    }
    let beside = scratch.directory("outer/deep/inner/below");
    match init(&beside, None).unwrap_err() {
        InitError::InsideStore { store, .. } => assert_eq!(store, inner),
        error => panic!("{error}"),
    }
    assert!(!outer.join(".atomdir").exists() && !beside.join(".atomdir").exists());
}

/// Archives and clones bring control directories along, and anybody can make one in a directory of
/// theirs.
#[test]
fn what_lies_in_a_store_belongs_to_it() {
    let scratch = Scratch::new();
    let outer = scratch.directory("outer");
    init(&outer, None).unwrap();
    let other = scratch.directory("other");
    init(&other, None).unwrap();
    for control in ["copied", "moved", "empty"] {
        let inner = outer.join(control);
        let below = inner.join("a/b");
        fs::create_dir_all(&below).unwrap();
        match control {
            "copied" => copy_tree(&other.join(".atomdir"), &inner.join(".atomdir")),
            "moved" => {
                let own = scratch.directory("own");
                init(&own, None).unwrap();
                fs::remove_dir_all(&inner).unwrap();
                fs::rename(&own, &inner).unwrap();
                fs::create_dir_all(&below).unwrap();
            }
            _ => fs::create_dir(inner.join(".atomdir")).unwrap(),
        }
        let found = find(&below).unwrap();
        assert_eq!(found.root, outer, "{control}");
        assert_eq!(found.start, Path::new(control).join("a/b"), "{control}");
        let error = StoreLocation::at(&inner).unwrap_err();
        assert!(
            matches!(error, FindError::Inside { .. }),
            "{control}: {error}"
        );
        for refused in [
            init(&inner, None).unwrap_err(),
            adopt_with(&inner, Trust::Everyone).unwrap_err(),
        ] {
            let is_inside = matches!(refused, InitError::InsideStore { .. });
            assert!(is_inside, "{control}: {refused}");
        }
    }
}

#[test]
fn a_control_directory_counts_only_where_it_was_made() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let made = init(&site, None).unwrap();
    let copy = scratch.0.join("copy");
    copy_tree(&site, &copy);
    let only_control = scratch.directory("only-control");
    copy_tree(&site.join(".atomdir"), &only_control.join(".atomdir"));
    for copy in [&copy, &only_control] {
        for found in [find(copy), StoreLocation::at_with(copy, Trust::Everyone)] {
            let error = found.unwrap_err();
            assert!(matches!(error, FindError::Unadopted { .. }), "{error}");
        }
        let error = init(copy, None).unwrap_err();
        assert!(matches!(error, InitError::Existing(_)), "{error}");
    }
    // The original, and the control directory with another root.
    assert_eq!(find(&site).unwrap(), made.store);
    let renamed = scratch.0.join("renamed");
    fs::rename(&site, &renamed).unwrap();
    assert_eq!(find(&renamed).unwrap().root, renamed);
    let other = scratch.directory("other");
    fs::rename(renamed.join(".atomdir"), other.join(".atomdir")).unwrap();
    let error = find(&other).unwrap_err();
    assert!(matches!(error, FindError::Copied { .. }), "{error}");
    let error = adopt_with(&other, Trust::Everyone).unwrap_err();
    assert!(error.to_string().contains("is a copy"), "{error}");
    fs::rename(other.join(".atomdir"), renamed.join(".atomdir")).unwrap();
    assert_eq!(find(&renamed).unwrap().root, renamed);
}

#[test]
fn adopting_admits_nobody_and_closes_the_control_files() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    init(&site, None).unwrap();
    let copy = scratch.0.join("copy");
    copy_tree(&site, &copy);
    let control = copy.join(".atomdir");
    let settings = "allow 1234\nhistory-space 90%\nview exact\nunknown to us\n";
    fs::write(control.join("settings"), settings).unwrap();
    fs::write(control.join("transactions"), "planted").unwrap();
    symlink("/etc/passwd", control.join("service.log")).unwrap();
    for open in ["header", "log", "stage"] {
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(control.join(open), mode).unwrap();
    }
    let adopted = adopt_with(&copy, Trust::Listed).unwrap();
    assert_eq!(adopted.store, find(&copy).unwrap());
    assert!(adopted.adoption.is_some());
    let settings = fs::read_to_string(control.join("settings")).unwrap();
    assert_eq!(settings, "view exact\n");
    for gone in ["transactions", "service.log"] {
        assert!(control.join(gone).symlink_metadata().is_err(), "{gone}");
    }
    assert_eq!(mode(&control), 0o711);
    for private in ["header", "log", "stage"] {
        assert_eq!(mode(&control.join(private)) & 0o077, 0, "{private}");
    }
    let again = adopt_with(&copy, Trust::Listed).unwrap();
    assert_eq!(again.adoption, None);
    assert!(find(&site).is_ok());
}

/// `init` finishes only what an interrupted `init` has left.
#[test]
fn a_control_directory_without_a_header_is_not_filled_in() {
    for (name, contents) in [("settings", "allow 1234\n"), ("log", "x"), ("past", "")] {
        let scratch = Scratch::new();
        let site = scratch.directory("site");
        fs::create_dir(site.join(".atomdir")).unwrap();
        fs::write(site.join(".atomdir").join(name), contents).unwrap();
        let error = init(&site, None).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(!site.join(".atomdir/header").exists(), "{name}");
    }
}

#[test]
fn the_control_directory_may_be_elsewhere_on_the_file_system() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let control = scratch.0.join("control");
    let made = init(&site, Some(&control)).unwrap();
    assert_eq!(made.store.control, control);
    let pointer = fs::read_to_string(site.join(".atomdir")).unwrap();
    assert!(
        pointer.starts_with(&format!("{}\n", control.display())),
        "{pointer}"
    );
    assert_eq!(find(&site).unwrap(), made.store);
    assert!(!init(&site, Some(&control)).unwrap().created);
    assert!(!init(&site, None).unwrap().created);
    let other = scratch.0.join("other");
    let error = init(&site, Some(&other)).unwrap_err();
    assert!(matches!(error, InitError::OtherControl { .. }), "{error}");

    let second = scratch.directory("second");
    let error = init(&second, Some(&control)).unwrap_err();
    assert!(error.to_string().ends_with("it is not empty"), "{error}");
    fs::copy(site.join(".atomdir"), second.join(".atomdir")).unwrap();
    let error = find(&second).unwrap_err();
    assert!(matches!(error, FindError::Copied { .. }), "{error}");
    assert_eq!(find(&site).unwrap(), made.store);

    fs::rename(&control, &other).unwrap();
    let error = find(&site).unwrap_err();
    assert!(matches!(error, FindError::BadControl { .. }), "{error}");
}

/// Whoever could write in the directory before may have left it there.
#[test]
fn a_link_in_a_new_control_directory_leads_to_no_other_file() {
    let scratch = Scratch::new();
    let (site, control) = (scratch.directory("site"), scratch.directory("control"));
    let precious = scratch.0.join("precious");
    fs::write(&precious, "mine").unwrap();
    fs::hard_link(&precious, control.join("pointer.new")).unwrap();
    let made = init(&site, Some(&control)).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(mode(&made.store.control), 0o711);
    assert_eq!(find(&site).unwrap(), made.store);
}

#[test]
fn an_unfit_control_directory_is_refused() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let inside = init(&site, Some(&site.join("sub"))).unwrap_err();
    assert!(
        matches!(inside, InitError::ControlInside { .. }),
        "{inside}"
    );
    let around = init(&site, Some(&scratch.0)).unwrap_err();
    assert!(
        matches!(around, InitError::ControlInside { .. }),
        "{around}"
    );

    let outer = scratch.directory("outer");
    init(&outer, None).unwrap();
    let nested = init(&site, Some(&outer.join("control"))).unwrap_err();
    assert!(nested.to_string().contains("inside the store"), "{nested}");

    let memory = Scratch::below(Path::new("/dev/shm"));
    if fs::metadata(&memory.0).unwrap().dev() == fs::metadata(&site).unwrap().dev() {
        skip("stores", "/dev/shm is not a file system of its own");
    } else {
        let elsewhere = init(&site, Some(&memory.0)).unwrap_err();
        assert!(
            matches!(elsewhere, InitError::ControlElsewhere { .. }),
            "{elsewhere}"
        );
    }
    assert_eq!(fs::read_dir(&site).unwrap().count(), 0);
}

#[test]
fn init_of_a_non_directory_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "").unwrap();
    for (path, is_expected) in [
        (
            file.clone(),
            (|error| matches!(error, InitError::NotADirectory { .. })) as fn(&_) -> bool,
        ),
        (scratch.0.join("none"), |error| {
            matches!(error, InitError::NotFound { .. })
        }),
        (file.join("below"), |error| {
            matches!(error, InitError::NotADirectory { .. })
        }),
    ] {
        let error = init(&path, None).unwrap_err();
        assert!(is_expected(&error), "{error}");
    }
}

/// Whoever may write a tree must not lend it another's control files.
#[test]
fn a_control_directory_is_found_only_where_its_owner_put_it() {
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let control = scratch.0.join("control");
    init(&site, Some(&control)).unwrap();
    let linked = scratch.directory("linked");
    symlink(&control, linked.join(".atomdir")).unwrap();
    let error = find(&linked).unwrap_err();
    assert!(matches!(error, FindError::NotAControl { .. }), "{error}");

    if !rustix::process::geteuid().is_root() {
        return skip("stores", "only root can make a file another user's");
    }
    std::os::unix::fs::chown(site.join(".atomdir"), Some(65_534), None).unwrap();
    let error = find(&site).unwrap_err();
    assert!(matches!(error, FindError::Untrusted { .. }), "{error}");
    let error = find_with(&site, Trust::Everyone).unwrap_err();
    assert!(matches!(error, FindError::BadControl { .. }), "{error}");
}

#[test]
fn a_tree_deeper_than_a_path_may_be_long_is_walked() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let scratch = Scratch::new();
    let site = scratch.directory("site");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut deepest = openat(rustix::fs::CWD, &site, flags, Mode::empty()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..40 {
        mkdirat(&deepest, &name, Mode::RWXU).unwrap();
        deepest = openat(&deepest, &name, flags, Mode::empty()).unwrap();
    }
    mkdirat(&deepest, ".atomdir", Mode::RWXU).unwrap();
    let error = init(&site, None).unwrap_err();
    assert!(matches!(error, InitError::HoldsStore { .. }), "{error}");
}
