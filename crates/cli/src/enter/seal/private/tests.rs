use super::*;

#[test]
fn what_is_named_stays_visible_and_nothing_else() {
    let directory = tempfile::tempdir().expect("made");
    let home = directory.path().canonicalize().expect("there").join("home");
    let store = home.join("work/site");
    std::fs::create_dir_all(&store).expect("made");
    std::fs::write(home.join("settings"), "").expect("written");
    let private = |path: &Path| Private {
        path: path.to_owned(),
        is_writable: false,
    };
    let wanted = [private(&home), private(&home.join("work")), private(&store)];
    std::os::unix::fs::symlink("settings", home.join("link")).expect("made");
    let links = [home.join("link"), home.with_file_name("elsewhere")];
    let prepare = |readable: &[PathBuf]| {
        let kept = Kept {
            base: &store,
            writable: &[],
            readable,
            links: &links,
        };
        Privates::prepare(&wanted, &kept).expect("prepared")
    };
    let settings = [home.join("settings")];
    let privates = prepare(&settings);
    assert_eq!(privates.made.len(), 1, "the others are in it");
    let inside: Vec<&CString> = privates.made[0]
        .inside
        .iter()
        .map(|(path, _)| path)
        .collect();
    let wanted_inside = ["settings", "work", "work/site", "link"];
    let wanted_inside = wanted_inside.map(|name| c_path(&home.join(name)).expect("no zero"));
    assert_eq!(inside, wanted_inside.iter().collect::<Vec<_>>());
    assert_eq!(privates.readable.len(), 1);
    // The user has named the home itself.
    assert!(prepare(std::slice::from_ref(&home)).made.is_empty());
}
