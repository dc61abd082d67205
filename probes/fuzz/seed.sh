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
# The same for aarch64: code analysis and relocations are others there.
arm() {
    local name=$1 linked=$corpus/aarch64-$1
    shift
    clang --target=aarch64-linux-gnu -ffreestanding -O2 -fPIC -funwind-tables \
        -mbranch-protection=standard -c -o "$linked.o" seed.c &&
        aarch64-linux-gnu-ld -z noseparate-code -z max-page-size=4096 --eh-frame-hdr --build-id=sha1 \
            --unresolved-symbols=ignore-all --export-dynamic "$@" -o "$linked" "$linked.o" &&
        aarch64-linux-gnu-ld -z noseparate-code -z max-page-size=4096 --eh-frame-hdr --build-id=sha1 \
            --unresolved-symbols=ignore-all --export-dynamic "$@" --strip-all -o "$linked-stripped" "$linked.o"
    rm -f "$linked.o"
}
if command -v clang aarch64-linux-gnu-ld >/dev/null; then
    arm shared -shared
    arm pie -pie -e main -dynamic-linker /lib/ld-linux-aarch64.so.1
    arm fixed -e main
else
    echo "no seeds for aarch64: clang and binutils-aarch64-linux-gnu make them" >&2
fi
ls -l "$corpus"
