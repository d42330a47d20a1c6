#!/bin/sh
# Builds libatomdir, shared and static, and installs it with atomdir.h and its pkg-config file:
#
#     crates/capi/install.sh PREFIX [PROFILE]
#
# It needs cargo and a C compiler. PROFILE is cargo's, by default release. DESTDIR is put before
# every path, as packagers expect. The script links the shared library itself, because rustc cannot
# set its soname and the versions of its symbols.
set -eu

prefix=$1 profile=${2:-release}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
soname=libatomdir.so.${version%%.*}
lib=${DESTDIR:-}$prefix/lib
include=${DESTDIR:-}$prefix/include

# The tests of the whole workspace have built the library already.
[ -n "${ATOMDIR_BUILT:-}" ] ||
    cargo build --locked --package atomdir-capi --profile "$profile"
target=$(cargo metadata --format-version 1 --no-deps --locked |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $profile in
    dev | test) folder=debug ;;
    *) folder=$profile ;;
esac
built=$target/$folder/libatomdir_c.a

mkdir -p "$lib/pkgconfig" "$include"
cp "$built" "$lib/libatomdir.a"
${CC:-cc} -shared -o "$lib/libatomdir.so.$version" -Wl,-soname,"$soname" \
    -Wl,--version-script="$here/atomdir.map" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    -Wl,--whole-archive "$built" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
ln -sf "libatomdir.so.$version" "$lib/$soname"
ln -sf "$soname" "$lib/libatomdir.so"
cp "$here/include/atomdir.h" "$include/atomdir.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/atomdir.pc.in" \
    > "$lib/pkgconfig/atomdir.pc"
