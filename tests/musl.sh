#!/bin/sh
# Builds `atomdir` for musl, as README.md shows it, and tries the program: it must be linked
# statically, find users, and run, list and recover transactions.
#
#     tests/musl.sh PROFILE
#
# PROFILE is cargo's. Environment: ATOMDIR_TEST_DIR is where the store is made.
set -eu
cd "$(dirname "$0")/.."

target=$(uname -m)-unknown-linux-musl
directory=$1
[ "$directory" != dev ] || directory=debug
cargo build --locked --profile "$1" --target "$target" -p atomdir-cli
atomdir=$(realpath "${CARGO_TARGET_DIR:-target}/$target/$directory/atomdir")

fail() {
    echo "musl.sh: $*" >&2
    exit 1
}

linked=$(ldd "$atomdir" 2>&1 || true)
case $linked in
    *"statically linked"* | *"not a dynamic executable"*) ;;
    *) fail "not linked statically: $linked" ;;
esac

scratch=$(mktemp -d "${ATOMDIR_TEST_DIR:-/var/tmp}/atomdir-musl.XXXXXX")
end() {
    "$atomdir" -C "$scratch/store" service stop --abort > /dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap end EXIT
trap 'exit 1' INT TERM
mkdir "$scratch/store"
cd "$scratch/store"
echo old > file
"$atomdir" init
for view in native exact; do
    "$atomdir" run --view "$view" --message "in a view that is $view" -- \
        sh -ec "test \$(cat file) = old; echo $view > $view"
    [ "$(cat "$view")" = "$view" ] || fail "the transaction in the $view view is not committed"
done
"$atomdir" run -- sh -c 'echo lost > file; exit 3' || [ $? = 3 ] || fail "a command's exit code"
[ "$(cat file)" = old ] || fail "a failed command has changed the store"
"$atomdir" log | tee "$scratch/log"
[ "$(grep -c 'in a view that is' "$scratch/log")" = 2 ] || fail "the log does not have both commits"
# musl reads /etc/passwd by itself.
[ "$(id -u)" != 0 ] || "$atomdir" config allow nobody
"$atomdir" service stop
"$atomdir" recover
"$atomdir" check
