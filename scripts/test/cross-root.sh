#!/usr/bin/env bash
# Unpacks a small Debian of arm64 into a folder: what programs of that machine need under qemu.
#
#   scripts/test/cross-root.sh [FOLDER]            (default: .cross-root; 120 MB)
#
# It contains the debug files of its own Python 3.13, which .cross-interpreters/trixie
# (scripts/interpreters.sh) has too: there the collector is found by symbols, elsewhere by code.
# Prints the folder; if that fails, the reason to stderr.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../.cross-root}
mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log
suite=trixie
# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$here/debian.sh"

packages=(bash coreutils dash grep libc-bin libcap2-bin mount procps sed util-linux
    python3 python3-minimal python3.13 python3.13-minimal libpython3.13 libpython3.13-minimal libpython3.13-stdlib
    libacl1 libattr1 libaudit1 libblkid1 libbz2-1.0 libc6 libcap-ng0 libcap2 libcrypt1 libexpat1 libffi8 libgcc-s1 libgmp10
    liblastlog2-2 liblzma5 libmount1 libncursesw6 libpam0g libpcre2-8-0 libproc2-0 libreadline8t64 libselinux1 libsmartcols1
    libsqlite3-0 libssl3t64 libsystemd0 libtinfo6 libudev1 libuuid1 libzstd1 zlib1g)

give_up() {
    echo "cross-root: $1" >&2
    exit 1
}

# The debug file of a program, from Python's package of them.
debug_file() {
    local id
    id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
    mkdir -p "$folder/usr/lib/debug/.build-id/${id:0:2}"
    mv "$folder/debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" "$folder/usr/lib/debug/.build-id/${id:0:2}/"
}

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ]; then
    echo "$folder"
    exit 0
fi
: >"$log"
archive=$(debian_archive debian || true)
[ -n "$archive" ] || give_up "this machine has no Debian archive in its package sources"
rm -rf "${folder:?}"
apt_options "$folder.apt"
options+=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64)
debian_source "$archive" "$suite" >"$folder.apt/sources/$suite.sources"
apt-get "${options[@]}" update >>"$log" 2>&1 || give_up "apt-get update of Debian's $suite failed (see $log)"
debian_into "$folder" "${packages[@]/%/:arm64/$suite}" || give_up "Debian's packages could not be unpacked (see $log)"
debian_into "$folder/debug" "python3.13-dbg:arm64/$suite" || give_up "Python's debug files could not be unpacked (see $log)"
debug_file "$folder/usr/bin/python3.13"
debug_file "$folder/usr/lib/aarch64-linux-gnu/libpython3.13.so.1.0"
rm -rf "$folder.apt" "${folder:?}"/{debug,usr/share,var}
ln -sfn dash "$folder/usr/bin/sh"
touch "$folder/.complete"
echo "$folder"
