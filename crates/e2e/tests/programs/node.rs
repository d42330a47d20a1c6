//! Node and npm. Numbers in JavaScript are doubles.

use atomdir_testing::{Scenario, tools_present};

const TREE: &str = r#"
mkdir p q
for i in 1 2 3 4 5 6 7 8; do echo content $i > p/f$i; ln p/f$i q/f$i; done
echo '{ "name": "packed", "version": "1.0.0", "files": ["p"] }' > package.json
"#;

/// npm stores files with equal device and inode numbers as links to one of them.
#[test]
fn npm_packs_files_with_several_names() {
    let test = "npm_packs_files_with_several_names";
    if !tools_present(test, &["node", "npm", "tar"]) {
        return;
    }
    let script = r#"
export npm_config_cache=$HOME/.npm npm_config_update_notifier=false
npm pack --silent --offline > /dev/null
tar -xzf packed-1.0.0.tgz; rm packed-1.0.0.tgz
tail -n +1 package/p/*
"#;
    Scenario::shell("npm-pack", script)
        .prepare(TREE)
        .same_output()
        .check_for_each_owner();
}

#[test]
fn numbers_are_exact_in_javascript() {
    let test = "numbers_are_exact_in_javascript";
    if !tools_present(test, &["node"]) {
        return;
    }
    let script = r#"
mkdir new; echo 1 > new/a; ln new/a new/b; echo 2 > p/g1
node -e '
const fs = require("fs");
const files = new Map();
for (const directory of [".", "p", "q", "new"]) {
    for (const name of fs.readdirSync(directory)) {
        const path = directory + "/" + name;
        const [rounded, exact] = [fs.lstatSync(path), fs.lstatSync(path, { bigint: true })];
        if (!Number.isSafeInteger(rounded.ino)) throw path + " " + exact.ino;
        const key = rounded.dev + ":" + rounded.ino;
        files.set(key, (files.get(key) || []).concat(path));
    }
}
console.log([...files.values()].filter((paths) => paths.length > 1).sort().join("\n"));
'
"#;
    Scenario::shell("node-stat", script)
        .prepare(TREE)
        .same_output()
        .check_for_each_owner();
}

/// pnpm's store and all projects share the inodes of packages.
#[test]
fn pnpm_links_packages_from_its_store() {
    let test = "pnpm_links_packages_from_its_store";
    if !tools_present(test, &["node", "npm", "pnpm"]) {
        return;
    }
    let prepare = r#"
mkdir one two app
for name in one two; do
    echo "module.exports = '$name'" > $name/index.js
    echo "{ \"name\": \"$name\", \"version\": \"1.0.0\" }" > $name/package.json
    (cd $name; npm pack --silent --offline > /dev/null; mv $name-1.0.0.tgz ..)
done
cd app
echo '{ "name": "app", "version": "1.0.0", "dependencies": { "one": "file:../one-1.0.0.tgz" } }' > package.json
pnpm install --offline --silent --store-dir ../store --package-import-method hardlink
"#;
    let script = r#"
cd app
add() { pnpm "$@" --offline --silent --store-dir ../store --package-import-method hardlink; }
add add ../two-1.0.0.tgz
node -e "console.log(require('one'), require('two'))"
rm -r node_modules; add install --frozen-lockfile
node -e "console.log(require('one'), require('two'))"
find . ../store -type f -links +1 | wc -l
# The store's index has the times of its checks.
rm -r node_modules ../store
"#;
    Scenario::shell("pnpm", script)
        .prepare(prepare)
        .same_output()
        .runs_long()
        .check_for_each_owner();
}
