//! Mercurial runs outside of transactions, on a work tree that is a store.

use atomdir_testing::{Fixture, shell, tools_present};

const ENVIRONMENT: &str = "export HGUSER=user HGRCPATH= HGPLAIN=1\n";

#[test]
fn mercurial_leaves_the_control_directory_alone() {
    if !tools_present("mercurial_leaves_the_control_directory_alone", &["hg"]) {
        return;
    }
    let fixture = Fixture::new("hg-control", "echo old > file; hg init .");
    let hg = |script: &str| shell(&fixture.base, &format!("{ENVIRONMENT}{script}")).text();
    hg("hg addremove -q; hg commit -m first");
    assert_eq!(hg("hg files"), "file\n");
    fixture.store.run("echo new > made").expect(0);
    assert_eq!(hg("hg status"), "? made\n");
    hg("hg commit -q -A -m second");
    assert_eq!(hg("hg files"), "file\nmade\n");
    hg("echo more > other; hg --config extensions.purge= purge --all");
    assert_eq!(hg("hg status; ls"), "file\nmade\n");
    fixture.store.run("echo again > made").expect(0);
    fixture.store.call(["check"]).expect(0);
    fixture.store.assert_at_rest();
}
