//! The modification time of a directory shows that its entries have changed, even if in
//! the end they are the same again. A commit must leave new times where the same
//! programs leave them in a plain directory, and old times everywhere else.

#![cfg(test)]

use atomdir_testing::{Scenario, users_can_mount};

const TREE: &str = "
mkdir -p came renamed linked removed replaced read empty below/deep
for d in renamed linked removed replaced read below/deep; do echo 1 > $d/file; done
find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
";

const CHANGES: [(&str, &str); 6] = [
    (
        "files came and went",
        ": > came/f; rm came/f; mkdir below/deep/d; rmdir below/deep/d; mkfifo empty/p; rm empty/p",
    ),
    (
        "names changed and changed back",
        "mv renamed/file renamed/other; mv renamed/other renamed/file
         ln linked/file linked/other; rm linked/other",
    ),
    (
        "files left and came back",
        "mv removed/file came/; mv came/file removed/",
    ),
    (
        "directories left and came back",
        "mv below/deep came/; mv came/deep below/",
    ),
    (
        "files were replaced, or only read and written",
        "cat read/file; ls read empty; echo 2 >> below/deep/file
         cp replaced/file replaced/new; mv replaced/new replaced/file",
    ),
    (
        "attributes that were set before and after entries had come and gone",
        ": > came/f; rm came/f; touch -d '2010-01-01' came; touch -d '2011-01-01' empty
         : > empty/f; rm empty/f; chmod 700 read; : > read/f; rm read/f; chmod 755 linked",
    ),
];

fn scenarios() -> impl Iterator<Item = Scenario> {
    CHANGES.into_iter().map(|(name, script)| {
        Scenario::shell(name, script)
            .prepare(TREE)
            .in_views(&["exact", "native"])
    })
}

#[test]
fn directory_times_are_as_in_a_plain_directory() {
    scenarios().for_each(|scenario| scenario.check());
}

#[test]
fn directory_times_of_a_user_are_as_in_a_plain_directory() {
    if users_can_mount("directory_times_of_a_user_are_as_in_a_plain_directory") {
        scenarios().for_each(|scenario| scenario.as_ordinary_user().check());
    }
}
