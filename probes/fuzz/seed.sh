#!/usr/bin/env bash
# Creates the first inputs of the fuzz target `resolve`: one small program, built, stripped and
# linked in several ways.
#
#   seed.sh FOLDER
set -euo pipefail
mkdir -p "$1"
corpus=$(cd "$1" && pwd)
cd "$(dirname "$0")"
build() {
    local name=$1
    shift
    cc -O2 -rdynamic -Wl,-z,noseparate-code "$@" -o "$corpus/$name" seed.c
    strip -o "$corpus/$name-stripped" "$corpus/$name"
}
sdt=()
[ -e /usr/include/sys/sdt.h ] && sdt=(-DHAVE_SDT)
build pie -fPIE -pie "${sdt[@]}"
build fixed -fno-pie -no-pie "${sdt[@]}"
build shared -fPIC -shared -Wl,--build-id=sha1
build relr -fPIE -pie -Wl,-z,pack-relative-relocs 2>/dev/null || rm -f "$corpus"/relr*
ls -l "$corpus"
