#!/usr/bin/env bash
# Builds the Python package from this tree, installs it into a virtual environment, and runs its
# tests there, fsspec's abstract suite and mypy among them: as this user, and for root also as the
# user nobody.
#
#     tests/python.sh PROFILE TIER DIRECTORY
#
# PROFILE is cargo's. TIER is quick, or full, which also runs pandas, pyarrow and zarr. Writes to
# DIRECTORY python-results (how many tests passed, failed and were skipped) and, if the
# tests cannot run here, python-skipped, which says why. Nothing outside DIRECTORY and cargo's
# target directory is changed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

profile=$1 tier=$2 results=$3
place=$results/python
passed=0 failed=0 skipped=0

finish() {
    echo "$passed $failed $skipped" > "$results/python-results"
    [ "$failed" = 0 ]
    exit
}

not_here() {
    echo "$1" > "$results/python-skipped"
    finish
}

check() {
    echo "-- $1"
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# run_pytest COMMAND...: adds what pytest counts.
run_pytest() {
    echo "-- $*"
    "$@" -q -p no:cacheprovider --basetemp="$(mktemp -du "$place/scratch/pytest.XXXXXX")" --junit-xml="$place/scratch/results.xml"
    local status=$?
    local counts
    counts=$(python_here - "$place/scratch/results.xml" <<'END'
import sys
import xml.etree.ElementTree as tree

try:
    suite = tree.parse(sys.argv[1]).getroot().find("testsuite").attrib
    bad = int(suite["failures"]) + int(suite["errors"])
    print(int(suite["tests"]) - bad - int(suite["skipped"]), bad, suite["skipped"])
except (OSError, tree.ParseError):
    print(0, 1, 0)
END
    )
    rm -f "$place/scratch/results.xml"
    local ran bad left_out
    read -r ran bad left_out <<< "$counts"
    # An error outside the tests.
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
    passed=$((passed + ran)) failed=$((failed + bad)) skipped=$((skipped + left_out))
}

# Runs a command as the user nobody, who may be unable to read this tree and uses a copy.
as_nobody() {
    setpriv --reuid=65534 --regid=65534 --clear-groups \
        env HOME=/nonexistent TMPDIR="$place/scratch" PYTHONDONTWRITEBYTECODE=1 "$@"
}

python_here() { "$place/venv/bin/python" "$@"; }

chmod o+x "$results"
mkdir -p "$place/scratch"
chmod 1777 "$place/scratch"
# Tries the system's Python first: the user nobody may be unable to reach another one.
/usr/bin/python3 -m venv "$place/venv" > /dev/null 2>&1 ||
    { rm -rf "$place/venv" && python3 -m venv "$place/venv"; } ||
    not_here "python3 -m venv does not work here (package python3-venv)"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python_here -m pip install -q -r tests/python-requirements.txt ||
    not_here "pip cannot install maturin, pytest, mypy and fsspec"

# The build finds what is installed here, and downloads nothing.
mkdir -p "$place/wheels"
PATH=$place/venv/bin:$PATH check "wheel" python_here -m pip wheel -q --no-deps \
    --no-build-isolation --wheel-dir "$place/wheels" \
    --config-settings=build-args="--locked --profile $profile" crates/python
[ "$failed" = 0 ] || finish
check "install" python_here -m pip install -q --no-deps "$place"/wheels/*.whl
[ "$failed" = 0 ] || finish

target=$(cargo metadata --format-version 1 --no-deps --locked 2> /dev/null |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $profile in
    dev) command=$target/debug/atomdir ;;
    *) command=$target/$profile/atomdir ;;
esac
# For the tests that need a service. Without it they are skipped.
if [ -x "$command" ]; then export ATOMDIR_BIN=$command; fi
cp -r crates/python/tests crates/python/examples crates/python/pyproject.toml "$place"
mkdir "$place/docs"
cp docs/python.md "$place/docs"
cp -r crates/python/python "$place/source"
tree=$PWD
cd "$place" || exit 1
check "types of the package" venv/bin/mypy --cache-dir "$place/mypy" source
# Checked against the installed wheel, which must therefore be marked as typed.
check "types of the tests" venv/bin/mypy --cache-dir "$place/mypy-tests" --exclude full tests examples
run_pytest venv/bin/pytest
if [ "$(id -u)" = 0 ]; then
    if as_nobody venv/bin/python -c pass; then
        run_pytest as_nobody venv/bin/pytest --ignore tests/test_fsspec_suite.py \
            --deselect tests/test_examples.py::test_a_row_and_its_file_appear_together \
            --deselect tests/test_examples.py::test_only_with_transactions_a_kill_leaves_no_file_without_a_row
    else
        echo "the user nobody cannot run $(command -v python3)" > "$results/python-skipped"
    fi
fi

# with_version VERSION PACKAGE...: runs the tests with another Python, if it is installed.
with_version() {
    local version=$1 other found=
    shift
    for other in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        if "$other" -c pass 2> /dev/null; then found=$other; fi
    done
    if [ -z "$found" ]; then
        echo "Python $version is not installed" >> "$results/python-skipped"
    elif "$found" -m venv "$place/venv-$version" &&
        "$place/venv-$version/bin/pip" install -q pytest fsspec "$@"; then
        run_pytest "$place/venv-$version/bin/pytest" --ignore tests/test_fsspec_suite.py
    else
        failed=$((failed + 1))
    fi
}

if [ "$tier" = full ]; then
    # The oldest version and a newer one. The oldest gets the package as users do, from the source.
    with_version 3.9 --config-settings=build-args="--locked --profile $profile" "$tree/crates/python"
    with_version 3.13 "$place"/wheels/*.whl
    if python_here -m pip install -q pandas pyarrow zarr; then
        run_pytest venv/bin/pytest -o addopts= tests/full
    else
        echo "pip cannot install pandas, pyarrow and zarr" > "$results/python-skipped"
    fi
fi
finish
