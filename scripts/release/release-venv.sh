#!/usr/bin/env bash
# Creates a virtual environment with the tools that make and check releases: zig, which compiles and
# links for an old glibc and other machines, cargo-zigbuild, maturin, auditwheel and uv.
#
#   scripts/release/release-venv.sh [--here] [FOLDER]   (default: .venv-release; 510 MB, 140 MB to download)
#
# --here: only maturin and uv, for tests on this machine (default folder: .venv-release-here; 90 MB).
# Prints its folder `bin`, for the front of PATH. If that fails, prints the reason to stderr and
# exits with 1. Versions are pinned: the same tools make the same bytes.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
packages=(maturin==1.16.0 uv==0.13.9)
programs=(maturin uv)
folder=.venv-release
if [ "${1:-}" = --here ]; then
    folder+=-here
    shift
else
    packages+=(ziglang==0.17.1 cargo-zigbuild==0.24.0 auditwheel==6.8.2)
    programs+=(zig cargo-zigbuild auditwheel)
fi
folder=${1:-$here/../../$folder}

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "release-venv: $1" >&2
    exit 1
}

works() {
    local program
    for program in "${programs[@]}"; do
        "$folder/bin/$program" "$([ "$program" = zig ] || echo --)version" >>"$log" 2>&1 || return 1
    done
}

exec 9>"$folder.lock"
flock 9
if [ "$(cat "$folder/.complete" 2>/dev/null)" = "${packages[*]} 2" ] && works; then
    echo "$folder/bin"
    exit 0
fi

: >"$log"
# The system's Python has the modules that auditwheel needs; others may be without.
python=/usr/bin/python3
"$python" -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
rm -rf "$folder"
"$python" -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "${packages[@]}" >>"$log" 2>&1 ||
    give_up "${packages[*]} could not be installed (see $log)"
if [[ "${programs[*]}" = *zig* ]]; then
    # The package has the program outside `bin`; cargo-zigbuild looks for it in PATH. Clang writes the
    # working folder into debug information as PWD has it: what zig compiles on its own, of libunwind and
    # glibc, is then the same in every folder.
    zig=$("$folder/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
    printf '#!/bin/sh\nPWD=/proc/self/cwd exec "%s" "$@"\n' "$zig" >"$folder/bin/zig"
    chmod +x "$folder/bin/zig"
fi
works || give_up "the tools are installed but do not run (see $log)"
echo "${packages[*]} 2" >"$folder/.complete"
echo "$folder/bin"
