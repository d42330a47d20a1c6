#!/bin/sh
# Installs, on Debian 12, the programs that the end-to-end tests run inside
# transactions, and says which. A test whose programs are missing is skipped and
# counted. What is installed stays installed. Postfix is only unpacked, into the cache
# directory of the user who runs this.
set -eu

# One package or a few on each line, and what needs them.
packages="
    fuse3           # fusermount3: views of ordinary users
    acl attr        # setfacl, getfacl, setfattr, getfattr
    libcap2-bin     # setcap, getcap
    procps strace   # ps; counting the system calls of a service
    rsync
    sqlite3 libsqlite3-dev  # the header that the extension is compared with
    zip unzip zstd  # archives, beside tar and xz
    git
    perl
    exim4-daemon-light  # delivers mail by atomdir-deliver
    libdb5.3 libicu72 libnsl2 libsasl2-2 libssl3    # what Postfix needs, see below
    slapd ldap-utils    # OpenLDAP, in front of atomdir-ldap
    gcc make libc6-dev dpkg-dev xz-utils    # the C project from its source package
    pkgconf         # pkg-config: how a program in C finds the library
    g++             # atomdir.h from C++
    python3 python3-venv python3-pip
    e2fsprogs mount # a small ext4 of its own: the full file system, power cuts
    xfsprogs btrfs-progs    # power cuts on xfs and btrfs
    util-linux      # setpriv, unshare
"
names=$(printf '%s' "$packages" | sed 's/#.*//')
# Debian's npm needs 300 packages, so a node that is there already is used as it is.
command -v npm > /dev/null 2>&1 || names="$names nodejs npm"

missing=
for name in $names; do
    state=$(dpkg-query --show --showformat '${db:Status-Status}' "$name" 2> /dev/null || true)
    [ "$state" = installed ] || missing="$missing $name"
done

# Debian has Postfix or Exim installed, not both. So Postfix is only unpacked; its test runs it in
# namespaces of its own, where the users that it needs exist.
postfix=${XDG_CACHE_HOME:-$HOME/.cache}/atomdir/postfix
unpack_postfix() {
    echo "unpacking Postfix for its test into $postfix"
    rm -rf "$postfix" "$postfix.new"
    mkdir -p "$postfix.new"
    cd "$postfix.new"
    apt-get -q -o APT::Sandbox::User=root download postfix >&2
    dpkg-deb -x postfix_*.deb .
    mv "$postfix.new" "$postfix"
}

[ -n "$missing" ] || [ ! -d "$postfix" ] || exit 0

[ -z "$missing" ] || echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# Debian does not start slapd if its package has made no database.
echo "slapd slapd/no_configuration boolean true" | debconf-set-selections
apt-get -q update >&2
# shellcheck disable=SC2086 # a list of names
[ -z "$missing" ] || apt-get -q install --yes --no-install-recommends $missing >&2
[ -d "$postfix" ] || unpack_postfix
