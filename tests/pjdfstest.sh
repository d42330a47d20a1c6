#!/bin/sh
# Runs pjdfstest, the POSIX file system test suite, as root: first on the plain
# file system, then in a view of a store on it. What passes outside must pass
# inside, but for the exceptions that tests/pjdfstest-exceptions.txt gives
# reasons for; and an exception that passes is one no more.
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
for profile in release debug; do
    [ -n "$atomdir" ] || [ ! -x "$target/$profile/atomdir" ] || atomdir=$target/$profile/atomdir
done
[ -x "$atomdir" ] || fail "no atomdir binary; build it with 'cargo build -p atomdir-cli', or name one in ATOMDIR_BIN"

suite=${PJDFSTEST:-}
if [ -z "$suite" ]; then
    place=${XDG_CACHE_HOME:-$HOME/.cache}/atomdir/pjdfstest-$version
    suite=$place/bin/pjdfstest
    [ -x "$suite" ] || cargo install --quiet --locked --version "$version" --root "$place" pjdfstest
fi

scratch=$(mktemp -d "${ATOMDIR_TEST_DIR:-/var/tmp}/atomdir-pjdfstest.XXXXXX")
secondary=$(mktemp -d /dev/shm/atomdir-pjdfstest.XXXXXX)
finish() {
    "$atomdir" -C "$scratch/base" service stop > /dev/null 2>&1 || true
    rm -rf "$scratch" "$secondary"
}
trap finish EXIT
trap 'exit 129' HUP INT TERM

chmod 755 "$scratch" "$secondary"
mkdir "$scratch/plain" "$scratch/base"

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

# Leaves a line "CASE RESULT" for each case in $1.results, sorted.
collect() {
    grep -q '^Summary: ' "$1.out" || {
        cat "$1.out" "$1.err" >&2
        fail "the suite did not come to its end; see above"
    }
    LC_ALL=C awk '$2 ~ /^(ok|FAILED|skipped)$/ && $1 ~ /::/ { print $1, $2 }' "$1.out" \
        | LC_ALL=C sort > "$1.results"
}

export NO_COLOR=1 RUST_BACKTRACE=0

"$suite" -c "$scratch/pjdfstest.toml" -p "$scratch/plain" -s "$secondary" -- "$@" \
    > "$scratch/outside.out" 2> "$scratch/outside.err" || true
collect "$scratch/outside"

"$atomdir" init "$scratch/base" > /dev/null
"$atomdir" run -C "$scratch/base" --on-success abort --on-error abort -- \
    "$suite" -c "$scratch/pjdfstest.toml" -p "$scratch/base" -s "$secondary" -- "$@" \
    > "$scratch/inside.out" 2> "$scratch/inside.err" || true
collect "$scratch/inside"

passed() { awk '$2 == "ok" { print $1 }' "$scratch/$1.results"; }
passed outside > "$scratch/passed-outside"
passed inside > "$scratch/passed-inside"
sed -n 's/^\([^# ][^ ]*\).*/\1/p' "$exceptions" | LC_ALL=C sort > "$scratch/excepted"
cut -d ' ' -f 1 "$scratch/inside.results" > "$scratch/run-inside"

# A case that is skipped inside is as bad as one that fails.
LC_ALL=C comm -23 "$scratch/passed-outside" "$scratch/passed-inside" > "$scratch/worse"
LC_ALL=C comm -23 "$scratch/worse" "$scratch/excepted" > "$scratch/unexpected"
LC_ALL=C comm -12 "$scratch/excepted" "$scratch/run-inside" \
    | LC_ALL=C comm -23 - "$scratch/worse" > "$scratch/no-longer"
cut -d ' ' -f 1 "$scratch/outside.results" | LC_ALL=C comm -3 - "$scratch/run-inside" > "$scratch/not-both"

echo "outside: $(grep '^Summary: ' "$scratch/outside.out")"
echo "inside:  $(grep '^Summary: ' "$scratch/inside.out")"
echo "excepted: $(LC_ALL=C comm -12 "$scratch/worse" "$scratch/excepted" | wc -l)"

status=0
while read -r case; do
    status=1
    echo "passes outside, not inside: $case"
    # The case's own words, up to the next case.
    awk -v case="$case" '$1 ~ /::/ && NF == 2 { shown = ($1 == case) } shown' "$scratch/inside.out"
done < "$scratch/unexpected"
while read -r case; do
    status=1
    echo "excepted, yet it passes: remove $case from $exceptions"
done < "$scratch/no-longer"
if [ -s "$scratch/not-both" ]; then
    status=1
    echo "not run on both sides:"
    cat "$scratch/not-both"
fi
exit $status
