#!/bin/bash
# Runs SQLite's own tests on databases in a store, as an ordinary user or, through a service, as root,
# and mptest with several processes. The file system of the extension is the default one there.
#
# tests/sqlite/files says which test files run, and tests/sqlite/exceptions which of their tests fail
# and why. A failure that is not listed there, a listed test that passes or does not run, and a file
# that does not come to its end are failures of this script.
#
#     tests/sqlite-suite.sh [FILE...]     all files, or those whose names hold FILE
#
# Environment: ATOMDIR_BIN is the binary under test, the extension is beside it; ATOMDIR_TEST_DIR
# where to test. The suite is built once, from Debian's source package.
set -euo pipefail

version=3.40.1
repository=$(cd "$(dirname "$0")/.." && pwd)
parts=$repository/tests/sqlite
file_minutes_max=15

fail() {
    echo "sqlite-suite.sh: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "must run as root: it installs packages and runs the tests as the user nobody"

atomdir=${ATOMDIR_BIN:-}
target=${CARGO_TARGET_DIR:-$repository/target}
for profile in checked release quick debug; do
    [ -n "$atomdir" ] || [ ! -x "$target/$profile/atomdir" ] || atomdir=$target/$profile/atomdir
done
extension=$(dirname "$atomdir")/libatomdir_sqlite.so
[ -x "$atomdir" ] && [ -f "$extension" ] ||
    fail "build it first: cargo build -p atomdir-cli -p atomdir-sqlite"

place=${XDG_CACHE_HOME:-$HOME/.cache}/atomdir/sqlite-$version

# Fetches Debian's source package by apt, which checks its signature. The machine's own list of
# sources stays as it is.
fetch() {
    mkdir -p lists/partial archives/partial
    echo 'deb-src http://deb.debian.org/debian bookworm main' > sources.list
    apt() {
        apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/archives" \
            -o APT::Sandbox::User=root "$@"
    }
    apt update && apt source --download-only sqlite3 && dpkg-source -x ./*.dsc source
}

prepare_sources() {
    echo 'source $::env(SUITE_PARTS)/after.tcl' >> source/test/tester.tcl
    # Patches mptest: a transaction that meets a conflict runs again, and the count of errors is
    # not reset when a script starts.
    sed -i -e 's/^\( *\)runSql("COMMIT TRANSACTION;");$/\1if( trySql("COMMIT")==SQLITE_BUSY ) continue;/' \
        -e '/^static int startScript/,/^}/ s/^ *g.nError = 0;$//' source/mptest/mptest.c
}

build() {
    local package missing=
    for package in tcl8.6-dev zlib1g-dev gcc make libc6-dev dpkg-dev; do
        dpkg-query --show "$package" > /dev/null 2>&1 || missing="$missing $package"
    done
    [ -z "$missing" ] || echo "installing$missing"
    echo "building SQLite's tests in $place"
    # shellcheck disable=SC2086 # a list of names
    [ -z "$missing" ] || DEBIAN_FRONTEND=noninteractive apt-get -q install --yes $missing
    rm -rf "$place"
    mkdir -p "$place/build"
    cd "$place"
    fetch
    prepare_sources
    cd build
    ../source/configure --enable-all --with-tcl=/usr/lib/tcl8.6
    cp "$parts/init.c" "$parts/mptest.c" .
    echo 'TESTFIXTURE_SRC += init.c' >> Makefile
    make -j "$(nproc)" OPTS=-DSQLITE_EXTRA_INIT=suite_init testfixture
    gcc -O1 -I. -c -Dmain=mptest_main -o mptest.o ../source/mptest/mptest.c
    gcc -O1 -I. -o mptest mptest.c mptest.o sqlite3.c -lm -ldl -lpthread
    touch complete
}

if [ ! -f "$place/build/complete" ]; then
    echo "building SQLite's tests in $place"
    build_log=$(mktemp)
    (build) > "$build_log" 2>&1 || {
        tail -n 20 "$build_log" >&2
        fail "SQLite's tests could not be built"
    }
    rm "$build_log"
fi

# Short, because the path of a socket has at most 107 bytes.
scratch=$(mktemp -d "${ATOMDIR_TEST_DIR:-/dev/shm}/atomdir-sql.XXXXXX")
finish() {
    for store in "$scratch"/*/store; do
        "$scratch/atomdir" -C "$store" service stop --abort > /dev/null 2>&1 || true
    done
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 129' HUP INT TERM

chmod 755 "$scratch"
# The user nobody may be unable to reach the originals.
cp "$atomdir" "$extension" "$place/build/testfixture" "$place/build/mptest" "$scratch"
cp -r "$place/source/test" "$parts" "$scratch"
cp -r "$place/source/mptest" "$scratch/scripts"
chmod -R a+rX "$scratch"

# as USER DIRECTORY COMMAND...: runs a command as a user in a directory.
as() {
    cd "$2"
    setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups env HOME="$scratch" "${@:3}"
}

# Runs one file in a store of its own, and leaves what it prints in FILE.out, and in FILE.results a
# line for each test: "FILE TEST passed" or "FILE TEST failed". A file that does not come to its end
# fails the test "(end)". Files that need a service run as root: an ordinary user's service needs a
# machine on which users can mount.
run_file() {
    local file=$1 door=$2 user=nobody status=0 directory=$scratch/$1.d
    [ "$door" = embedded ] || user=root
    mkdir -p "$directory/store"
    chown "$user:$(id -g "$user")" "$directory" "$directory/store"
    local variables=(SUITE_PARTS="$scratch/sqlite" SUITE_EXTENSION="$scratch/libatomdir_sqlite.so")
    (
        as "$user" "$directory" "$scratch/atomdir" init -q store
        if [ "$door" = service ]; then
            "$scratch/atomdir" -C store service start > /dev/null
        else
            variables+=(SUITE_KEEPER="$directory/store/keeper")
        fi
        as "$user" "$directory/store" timeout --kill-after=10 $((file_minutes_max * 60)) \
            env "${variables[@]}" "$scratch/testfixture" "$scratch/test/$file.test" --testdir=testdir
    ) > "$scratch/$file.out" 2>&1 || status=$?
    [ "$door" = embedded ] || "$scratch/atomdir" -C "$directory/store" service stop --abort > /dev/null
    rm -rf "$directory"
    awk -v file="$file" '
        /^[^ ]+\.\.\. Ok$/ { passed[substr($1, 1, length($1) - 3)] = 1 }
        $1 == "FAILED" && NF == 2 { failed[$2] = 1 }
        / errors out of [0-9]+ tests/ { ended = 1 }
        END {
            if (!ended) failed["(end)"] = 1
            for (test in failed) print file, test, "failed"
            for (test in passed) if (!(test in failed)) print file, test, "passed"
        }' "$scratch/$file.out" > "$scratch/$file.results"
    echo "$file: $(grep -c ' passed$' "$scratch/$file.results") passed," \
        "$(grep -c ' failed$' "$scratch/$file.results") failed"
}

# Runs mptest: several processes, each with connections of its own, use one service.
run_mptest() {
    local script store=$scratch/mptest.d/store
    mkdir -p "$store"
    "$scratch/atomdir" init -q "$store"
    "$scratch/atomdir" -C "$store" service start > /dev/null
    for script in crash01 multiwrite01; do
        SUITE_EXTENSION=$scratch/libatomdir_sqlite.so timeout $((file_minutes_max * 60)) \
            "$scratch/mptest" "$store/$script.db" "$scratch/scripts/$script.test" --vfs atomdir \
            > "$scratch/mptest-$script.out" 2>&1 || true
        if grep '^Summary: 0 errors out of' "$scratch/mptest-$script.out" > "$scratch/summary"; then
            echo "mptest $script: $(cat "$scratch/summary")"
        else
            status=1
            tail -n 20 "$scratch/mptest-$script.out"
            echo "mptest $script failed"
        fi
    done
    "$scratch/atomdir" -C "$store" service stop --abort > /dev/null
}

# Prints the lines FILE DOOR of tests/sqlite/files whose file the arguments choose.
chosen() {
    local file door pattern
    while read -r file door; do
        for pattern in "${@:-}"; do
            if [[ "$file" = *"$pattern"* ]]; then
                echo "$file $door"
                break
            fi
        done
    done < <(sed -n 's/^\([a-z0-9][^ ]*\) *\([a-z]*\)$/\1 \2/p' "$parts/files")
}

chosen "$@" > "$scratch/chosen"
[ -s "$scratch/chosen" ] || fail "there is no such file in $parts/files"
export -f run_file as
export scratch file_minutes_max
status=0
xargs -P "$(nproc)" -n 2 bash -euo pipefail -c 'run_file "$1" "$2"' run_file < "$scratch/chosen"

cat "$scratch"/*.results | LC_ALL=C sort > "$scratch/all"
sed -n 's/ failed$//p' "$scratch/all" > "$scratch/failed"
cut -d ' ' -f 1 "$scratch/chosen" | LC_ALL=C sort -u > "$scratch/ran"
sed -n '/^[a-z0-9]/p' "$parts/exceptions" | LC_ALL=C sort > "$scratch/listed"
LC_ALL=C join "$scratch/listed" "$scratch/ran" > "$scratch/excepted"

while read -r file test; do
    status=1
    echo "fails, and is not in $parts/exceptions: $file $test"
    if [ "$test" = "(end)" ]; then
        tail -n 12 "$scratch/$file.out"
    else
        grep -a -F -m 1 -A 4 -e "$test..." "$scratch/$file.out" || true
    fi
done < <(LC_ALL=C comm -23 "$scratch/failed" "$scratch/excepted")
while read -r file test; do
    status=1
    echo "does not fail, so remove it from $parts/exceptions: $file $test"
done < <(LC_ALL=C comm -13 "$scratch/failed" "$scratch/excepted")

[ $# != 0 ] || run_mptest
echo "$(wc -l < "$scratch/ran") files: $(grep -c ' passed$' "$scratch/all") tests passed," \
    "$(wc -l < "$scratch/failed") failed, of which $(wc -l < "$scratch/excepted") are expected to"
exit $status
