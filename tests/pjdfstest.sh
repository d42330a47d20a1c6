#!/bin/sh
# Runs pjdfstest, the POSIX file system test suite, as root and as an ordinary
# user: first on the plain file system, then in a view of a store on it. Each
# case that passes outside must pass inside, except those that
# tests/pjdfstest-exceptions.txt lists with a reason. It is an error if one of
# these passes.
#
#     tests/pjdfstest.sh [CASE...]     all cases, or those whose names hold CASE
#
# Environment: ATOMDIR_BIN is the binary under test; PJDFSTEST the suite's own
# (otherwise built from crates.io, once); ATOMDIR_TEST_DIR where to test.
set -eu

version=0.2.2
repository=$(cd "$(dirname "$0")/.." && pwd)
exceptions=$repository/tests/pjdfstest-exceptions.txt

fail() {
    echo "pjdfstest.sh: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "must run as root: the suite takes on other users' rights"

atomdir=${ATOMDIR_BIN:-}
target=${CARGO_TARGET_DIR:-$repository/target}
for profile in checked release debug; do
    [ -n "$atomdir" ] || [ ! -x "$target/$profile/atomdir" ] || atomdir=$target/$profile/atomdir
done
[ -x "$atomdir" ] || fail "no atomdir binary; build it with 'cargo build -p atomdir-cli', or name one in ATOMDIR_BIN"

suite=${PJDFSTEST:-}
if [ -z "$suite" ]; then
    place=${XDG_CACHE_HOME:-$HOME/.cache}/atomdir/pjdfstest-$version
    suite=$place/bin/pjdfstest
    [ -x "$suite" ] || echo "building pjdfstest in $place"
    [ -x "$suite" ] || cargo install --quiet --locked --version "$version" --root "$place" pjdfstest
fi

# Short, because the path of a socket has at most 107 bytes.
scratch=$(mktemp -d "${ATOMDIR_TEST_DIR:-/var/tmp}/atomdir-pjd.XXXXXX")
secondary=$(mktemp -d /dev/shm/atomdir-pjdfstest.XXXXXX)
finish() {
    for base in "$scratch"/*/base; do
        "$scratch/atomdir" -C "$base" service stop --abort > /dev/null 2>&1 || true
    done
    rm -rf "$scratch" "$secondary"
}
trap finish EXIT
trap 'exit 129' HUP INT TERM

chmod 755 "$scratch"
chmod 1777 "$secondary"
# The user nobody may be unable to reach the originals.
cp "$atomdir" "$scratch/atomdir"
cp "$suite" "$scratch/pjdfstest"
sed -n 's/^\([^# ][^ ]*\).*/\1/p' "$exceptions" | LC_ALL=C sort > "$scratch/excepted"

# The two users exist on every Debian. Remounting read-only would be done to
# the machine's own file system, so those cases are left out.
cat > "$scratch/pjdfstest.toml" << 'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END

# as USER DIRECTORY COMMAND...: runs a command as a user in a directory.
as() {
    user=$1 directory=$2
    shift 2
    (
        cd "$directory"
        exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups \
            env HOME="$scratch/$user" NO_COLOR=1 RUST_BACKTRACE=0 "$@"
    )
}

# Leaves a line "CASE RESULT" for each case of $1.out in $1.results, sorted.
collect() {
    grep -q '^Summary: ' "$1.out" || {
        cat "$1.out" "$1.err" >&2
        fail "the suite did not come to its end; see above"
    }
    awk '$2 ~ /^(ok|FAILED|skipped)$/ && $1 ~ /::/ { print $1, $2 }' "$1.out" \
        | LC_ALL=C sort > "$1.results"
    awk '$2 == "ok" { print $1 }' "$1.results" > "$1.passed"
    cut -d ' ' -f 1 "$1.results" > "$1.cases"
}

status=0

# both_sides USER CASE...: runs the suite outside and inside as a user.
both_sides() {
    user=$1
    shift
    mkdir "$scratch/$user" "$scratch/$user/plain" "$scratch/$user/base"
    chown -R "$user:$(id -g "$user")" "$scratch/$user"
    result=$scratch/result-$user
    set -- "$scratch/pjdfstest" -c "$scratch/pjdfstest.toml" -p . -s "$secondary" -- "$@"

    as "$user" "$scratch/$user/plain" "$@" > "$result-outside.out" 2> "$result-outside.err" || true
    collect "$result-outside"

    as "$user" "$scratch/$user" "$scratch/atomdir" init base > /dev/null
    as "$user" "$scratch/$user/base" "$scratch/atomdir" run --view exact --on-success abort --on-error abort -- "$@" \
        > "$result-inside.out" 2> "$result-inside.err" || true
    collect "$result-inside"

    echo "$user outside: $(grep '^Summary: ' "$result-outside.out")"
    echo "$user inside:  $(grep '^Summary: ' "$result-inside.out")"
    judge
}

# A case that is skipped inside is as bad as one that fails.
judge() {
    LC_ALL=C comm -23 "$result-outside.passed" "$result-inside.passed" > "$result-worse"
    LC_ALL=C comm -23 "$result-worse" "$scratch/excepted" > "$result-unexpected"
    LC_ALL=C comm -12 "$scratch/excepted" "$result-inside.passed" > "$result-no-longer"
    LC_ALL=C comm -3 "$result-outside.cases" "$result-inside.cases" > "$result-not-both"

    while read -r case; do
        status=1
        echo "passes outside, not inside, as $user: $case"
        # What the suite printed about the case, up to the next case.
        awk -v case="$case" '$1 ~ /::/ && NF == 2 { shown = ($1 == case) } shown' "$result-inside.out"
    done < "$result-unexpected"
    while read -r case; do
        status=1
        echo "excepted, yet it passes as $user: remove $case from $exceptions"
    done < "$result-no-longer"
    if [ -s "$result-not-both" ]; then
        status=1
        echo "not run on both sides as $user:"
        cat "$result-not-both"
    fi
}

both_sides root "$@"
both_sides nobody "$@"
exit $status
