#!/bin/sh
# Installs, on Debian 12, what the end-to-end tests run inside transactions.
# A test whose tools are missing is skipped, says so, and is counted.
set -eu

# One line each: why it is needed.
packages="
    fuse3           # fusermount3: views of ordinary users
    acl attr        # setfacl, getfacl, setfattr, getfattr
    libcap2-bin     # setcap, getcap
    rsync
    sqlite3
    git
    perl
    gcc make libc6-dev dpkg-dev xz-utils    # the C project from its source package
    python3 python3-venv python3-pip
    e2fsprogs mount # a small ext4 of its own: the full file system, power cuts
    xfsprogs btrfs-progs    # power cuts on xfs and btrfs
    util-linux      # setpriv, unshare
"
names=$(printf '%s' "$packages" | sed 's/#.*//' | tr -s ' \n' '  ')

# Debian's npm needs 300 packages; where a node is there already, it does.
command -v npm > /dev/null 2>&1 || names="$names nodejs npm"

export DEBIAN_FRONTEND=noninteractive
apt-get -q update
# shellcheck disable=SC2086 # a list of names
apt-get -q install --yes --no-install-recommends $names

# Debian's udev lets everyone open it; in a container there may be no udev.
[ ! -e /dev/fuse ] || chmod 666 /dev/fuse
