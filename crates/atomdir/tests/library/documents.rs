//! The code in docs/library.md is compiled here, and all that uses the library runs.

use crate::support::Place;
use atomdir::{Store, Take, Transaction};
use atomdir_testing::documents::{assert_contains_code, code_blocks};
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[test]
fn the_code_in_the_document_is_the_code_of_this_file() {
    let blocks = code_blocks(include_str!("../../../../docs/library.md"));
    assert_eq!(blocks.len(), 7);
    for block in blocks {
        let block = block.replace("\"/srv/data\"", "&place.base");
        assert_contains_code(include_str!("documents.rs"), &block);
    }
}

#[test]
fn the_code_in_the_document_does_what_it_says() -> Outcome {
    let place = Place::new("library-document");
    std::fs::create_dir(place.base.join("conf"))?;
    std::fs::write(place.base.join("state.new"), "1")?;
    three_files(&place)?;
    assert_eq!(place.read("conf/b.toml").as_deref(), Some("port = 81\n"));
    assert_eq!(place.read("state").as_deref(), Some("1"));
    past_and_parts(&place)?;
    assert_eq!(place.read("done").as_deref(), Some("1"));
    let merged = "# site\nport = 82\ntls = true\n";
    assert_eq!(place.read("conf/b.toml").as_deref(), Some(merged));
    // It works in the current directory, so it is only compiled.
    let _: fn() -> io::Result<()> = one_file_plainly;
    Ok(())
}

fn three_files(place: &Place) -> Outcome {
    atomdir::init(&place.base, None)?;
    let store = atomdir::Store::open(&place.base)?;
    let tx = store.begin()?;
    tx.write("conf/a.toml", b"port = 80\n")?;
    tx.write("conf/b.toml", b"port = 81\n")?;
    tx.rename("state.new", "state")?;
    tx.commit()?;
    Ok(())
}

fn one_file_plainly() -> io::Result<()> {
    let mut file = File::create("conf/a.toml.tmp")?;
    file.write_all(b"port = 80\n")?;
    file.sync_all()?;
    std::fs::rename("conf/a.toml.tmp", "conf/a.toml")?;
    File::open("conf")?.sync_all()?;
    Ok(())
}

fn past_and_parts(place: &Place) -> Outcome {
    let store = place.open();
    let earlier = store.log(1)?[0].sequence;
    let changed = store.begin()?;
    changed.write("conf/a.toml", b"port = 8080\n")?;
    changed.commit()?;
    let mut tx = store.begin()?;
    tx.write("done", "1")?;
    tx.write("conf/b.toml", b"port = 82\n")?;

    let last = &store.log(1)?[0]; // who, when, how many changes
    store.undo(&[last.sequence], &[])?.commit()?; // takes back what it changed
    store.restore(earlier, &["conf".as_ref()])?.commit()?;
    let then = store.at(earlier)?.read("conf/a.toml")?; // the store as it was
    tx.commit_part(&["done".as_ref()])?; // the rest stays open
    tx.refresh()?; // a newer snapshot, under its own changes

    assert_eq!(then, b"port = 80\n");
    let other = store.begin()?;
    other.write("conf/b.toml", b"port = 83\n")?;
    other.commit()?;
    with_sides(tx)?;
    assert_eq!(place.read("conf/b.toml").as_deref(), Some("port = 82\n"));

    let tx = store.begin()?;
    tx.write("conf/b.toml", b"port = 82\ntls = true\n")?;
    let other = store.begin()?;
    other.write("conf/b.toml", b"# site\nport = 82\n")?;
    other.commit()?;
    merged(tx)?;
    let tx = store.begin()?;
    tx.write("rules", "drop all\n")?;
    confirmed(&store, tx)?;
    let last = &store.log(1)?[0];
    assert_eq!(last.label, b"the new firewall");
    assert!(last.marks.pinned && last.marks.unconfirmed.is_none());
    kept(&store)
}

fn confirmed(store: &Store, tx: Transaction) -> Outcome {
    tx.confirm_within(Some(Duration::from_secs(300)))?; // as `atomdir commit --confirm 5m`
    if let Some(commit) = tx.commit()?.sequence() {
        store.confirm(commit)?; // or it takes itself back
        store.pin(commit)?; // keeps it from being forgotten
        store.relabel(commit, "the new firewall")?; // what the log says of it
    }
    Ok(())
}

fn merged(tx: Transaction) -> Outcome {
    let conflicts = tx.conflicts()?;
    tx.commit_with_sides(&vec![Take::Merge; conflicts.len()])?;
    Ok(())
}

fn kept(store: &Store) -> Outcome {
    store.set_setting("history-age", "30d")?; // as `atomdir config`
    store.prune(Some(Duration::from_secs(86_400)))?; // what is older than a day
    Ok(())
}

fn with_sides(tx: Transaction) -> Outcome {
    let conflicts = tx.conflicts()?; // each with its path, part and author
    tx.commit_with_sides(&vec![Take::Mine; conflicts.len()])?;
    Ok(())
}
