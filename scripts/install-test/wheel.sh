#!/usr/bin/env bash
# The wheel: environments of every interpreter, uv, pip --target, sudo, Debian 11.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
enter_overlay

wheel=$(find "$RELEASE_OUT" -maxdepth 1 -name "gctrace-*-py3-none-*linux*_$RELEASE_ARCH.whl")
[ -f "$wheel" ] || {
    failed "there is no wheel in $RELEASE_OUT"
    exit
}
home=/home/$user
probes=
if [ -e /sys/kernel/btf/vmlinux ]; then probes=yes; fi

# environment NAME PYTHON: with the wheel, in $home/NAME; by pip or, where the interpreter comes
# without it, by uv.
environment() {
    local folder=$home/$1
    if as_user "$2" -m venv "$folder"; then
        as_user "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
    else
        as_user "$2" -m venv --without-pip --clear "$folder" &&
            as_user "$INSTALL_TEST_TOOLS/uv" pip install --quiet --offline --no-index --python "$folder/bin/python" "$wheel"
    fi
}

# Everything that the wheel promises, in one environment.
whole() {
    local folder=$home/whole
    check "no compiler is left" no_compiler
    check "pip install" environment whole /usr/bin/python3
    user_path=$folder/bin
    check "python -m gctrace" version python -m gctrace --version
    check "import gctrace" imported python
    check "manual page" test -s "$folder/share/man/man1/gctrace-record.1"
    check "licenses of others" grep -rq elfutils "$folder/lib" --include THIRD-PARTY
    check "record, as a user" recording inject python gctrace
    if [ -n "$probes" ]; then
        for mode in ebpf both; do
            check "sudo \"\$(command -v gctrace)\" record --mode $mode" \
                recording "$mode" "$folder/bin/python" sudo "$folder/bin/gctrace"
        done
    else
        skipped "kernel probes: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    fi
    check "gctrace demo" demo gctrace
    check "pip uninstall leaves nothing" uninstalled "$folder"
    user_path=
}

version() { as_user "$@" | grep -qx "gctrace $(basename "$wheel" | cut -d- -f2)"; }

# The package has the program's version and its program, and pytest finds its plugin.
imported() {
    as_user "$@" -B - <<'SCRIPT'
import gc, os, subprocess, tempfile
from importlib.metadata import entry_points, files
import gctrace

printed = subprocess.check_output([gctrace.find_bin(), "--version"], universal_newlines=True)
assert printed == "gctrace " + gctrace.__version__ + "\n", printed
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "trace.json")
    with gctrace.record(path, by="callbacks"):
        gc.collect()
    assert gctrace.analyze(path)["totals"]["pauses"]["count"] >= 1
points = entry_points()
plugins = points.select(group="pytest11") if hasattr(points, "select") else points["pytest11"]
assert any(one.value == "gctrace.pytest_plugin" for one in plugins), plugins
assert {"_report.py", "py.typed"} <= {one.name for one in files("gctrace")}
SCRIPT
}

demo() {
    local printed
    printed=$(as_user "$@" demo ${INSTALL_TEST_QUICK:+--steps 40} 2>&1) || return 1
    grep -Eq "[0-9]+ steps in" <<<"$printed" && grep -q "Do this" <<<"$printed"
}

uninstalled() {
    as_user "$1/bin/python" -m pip uninstall --quiet --yes gctrace
    [ -z "$(find "$1" -ipath '*gctrace*')" ]
}

# Without the folder lib: the program brings its libraries along.
target() {
    local folder=$home/target
    as_user /usr/bin/python3 -m venv "$home/for-target" &&
        as_user "$home/for-target/bin/pip" install --quiet --disable-pip-version-check --no-index --target "$folder" "$wheel" &&
        recording inject /usr/bin/python3 env PYTHONPATH="$folder" /usr/bin/python3 -m gctrace
}

with_uv() {
    local uv=$INSTALL_TEST_TOOLS/uv options=(--quiet --offline --no-index --python /usr/bin/python3)
    user_path=$home/.local/bin
    check "uv tool install" as_user "$uv" tool install "${options[@]}" "$wheel"
    check "record, installed by uv" recording inject /usr/bin/python3 gctrace
    if [ -n "$probes" ]; then check "sudo, installed by uv" recording both /usr/bin/python3 sudo "$home/.local/bin/gctrace"; fi
    user_path=
    check "uvx gctrace -- python" recording inject /usr/bin/python3 "$INSTALL_TEST_TOOLS/uvx" "${options[@]}" --from "$wheel" gctrace
}

# The other interpreters of this machine (scripts/interpreters.sh).
interpreters() {
    local name path
    while IFS=$'\t' read -r name _ _ path _; do
        case $name in system-* | container-*) continue ;; esac
        if [ "$path" = - ]; then
            skipped "$name is unavailable"
            continue
        fi
        open_way "$path"
        # Some builds of the manylinux images start in their own folder, whatever the environment.
        if ! as_user "$path" -m venv --without-pip "$home/empty-$name" >/dev/null 2>&1 ||
            as_user "$home/empty-$name/bin/python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
            skipped "$name: it cannot create environments"
            continue
        fi
        check "environment of $name" environment "$name" "$path"
        check "record in the environment of $name" recording inject "$home/$name/bin/python" "$home/$name/bin/gctrace"
    done <"$GCTRACE_INTERPRETERS"
}

if [ -n "$INSTALL_TEST_TOOLS" ]; then open_way "$INSTALL_TEST_TOOLS"; fi
whole
check "pip install --target" target
if [ -x "$INSTALL_TEST_TOOLS/uv" ]; then
    with_uv
else
    skipped "uv is not installed"
fi
if [ -n "$INSTALL_TEST_QUICK" ]; then
    skipped "other interpreters: left out of the quick form"
elif [ -e "$GCTRACE_INTERPRETERS" ]; then
    interpreters
else
    skipped "there is no $GCTRACE_INTERPRETERS: scripts/interpreters.sh"
fi
