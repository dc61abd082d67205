#!/usr/bin/env bash
# Makes the fuzzer's first files in probes/fuzz/corpus/resolve: one small program, built, stripped
# and linked in several ways.
set -euo pipefail
cd "$(dirname "$0")"
corpus=corpus/resolve
mkdir -p "$corpus"
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
