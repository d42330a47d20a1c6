#!/bin/sh
# Installs, on Debian 12, the programs that the end-to-end tests run inside
# transactions, and says which. A test whose programs are missing is skipped and
# counted. What is installed stays installed, and so does the one setting of debconf that
# keeps slapd from being started. Postfix and Exim are only unpacked, into the cache
# directory of the user who runs this: installed, one of them would run as the machine's
# mail server.
set -eu

# One package or a few on each line, and what needs them.
packages="
    fuse3           # fusermount3: views of ordinary users
    acl attr        # setfacl, getfacl, setfattr, getfattr
    libcap2-bin     # setcap, getcap
    procps strace   # ps; counting the system calls of a service
    rsync
    zsh fish tmux   # completion in shells, beside bash; what a terminal shows
    sqlite3 libsqlite3-dev  # the header that the extension is compared with
    zip unzip zstd  # archives, beside tar and xz
    git mercurial vim
    perl
    libdb5.3 libicu72 libnsl2 libsasl2-2 libssl3    # what Postfix needs, see below
    libcrypt1 libgnutls30 libgnutls-dane0 libidn12 libidn2-0 libpcre2-8-0   # Exim
    slapd ldap-utils    # OpenLDAP, in front of atomdir-ldap
    gcc make libc6-dev dpkg-dev xz-utils    # the C project from its source package
    pkgconf         # pkg-config: how a program in C finds the library
    g++             # atomdir.h from C++
    python3 python3-venv python3-pip
    e2fsprogs mount # a small ext4 of its own: the full file system, power cuts
    xfsprogs btrfs-progs    # power cuts on xfs and btrfs
    util-linux      # setpriv, unshare
    debootstrap     # a whole system, for ./test --full
    bubblewrap      # bwrap: callers in sandboxes
"
names=$(printf '%s' "$packages" | sed 's/#.*//')
# Debian's npm needs 300 packages, so a node that is there already is used as it is.
command -v npm > /dev/null 2>&1 || names="$names nodejs npm"
# From npm's registry, as Debian has none.
pnpm=pnpm@9
! command -v pnpm > /dev/null 2>&1 || pnpm=

missing=
for name in $names; do
    state=$(dpkg-query --show --showformat '${db:Status-Status}' "$name" 2> /dev/null || true)
    [ "$state" = installed ] || missing="$missing $name"
done

# The tests run them in namespaces of their own, where the users that they need exist.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/atomdir
packed=
# The client with which the tools for agents are tried, and libraries that watch directories. Fixed, so
# that a new release cannot fail the test.
pypi="mcp==2.3.0 watchdog==6.0.0"
npm=chokidar@4.0.3
[ ! -x "$cache/python/bin/watchmedo" ] || pypi=
[ ! -d "$cache/node/node_modules/chokidar" ] || npm=
for name in postfix exim4-daemon-light; do
    [ -d "$cache/$name" ] || packed="$packed $name"
done

# unpack NAME: in a shell of its own.
unpack() (
    rm -rf "$cache/$1.new"
    mkdir -p "$cache/$1.new"
    cd "$cache/$1.new"
    apt-get -q -o APT::Sandbox::User=root download "$1" >&2
    dpkg-deb -x "$1"_*.deb .
    # Root's tests need no program that runs with the rights of its owner.
    find . -type f -exec chmod ug-s {} +
    mv "$cache/$1.new" "$cache/$1"
)

[ -n "$missing$packed$pnpm$pypi$npm" ] || exit 0

[ -z "$missing" ] || echo "installing$missing"
[ -z "$pnpm" ] || echo "installing $pnpm by npm"
[ -z "$packed" ] || echo "unpacking$packed into $cache"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >&2
case " $missing " in
    *" slapd "*)
        # Debian does not start slapd if its package has made no database.
        echo "setting slapd/no_configuration to true in debconf, so that slapd is not started"
        echo "slapd slapd/no_configuration boolean true" | debconf-set-selections
        ;;
esac
# shellcheck disable=SC2086 # a list of names
[ -z "$missing" ] || apt-get -q install --yes --no-install-recommends $missing >&2
for name in $packed; do
    unpack "$name"
done
[ -z "$pnpm" ] || npm install --silent --global --no-audit --no-fund "$pnpm" >&2
# Without these, their tests are skipped.
if [ -n "$pypi" ]; then
    echo "installing $pypi from PyPI into $cache/python"
    rm -rf "$cache/python" "$cache/python.new"
    python3 -m venv "$cache/python.new"
    # shellcheck disable=SC2086 # a list of names
    "$cache/python.new/bin/python" -m pip install -q --disable-pip-version-check $pypi >&2
    mv "$cache/python.new" "$cache/python"
fi
if [ -n "$npm" ]; then
    echo "installing $npm by npm into $cache/node"
    rm -rf "$cache/node" "$cache/node.new"
    npm install --silent --no-audit --no-fund --prefix "$cache/node.new" "$npm" >&2
    mv "$cache/node.new" "$cache/node"
fi
