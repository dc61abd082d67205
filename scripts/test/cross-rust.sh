#!/usr/bin/env bash
# A Rust compiler that builds for other targets than this machine's, where rustup has none to offer:
# Debian's, of a later release, unpacked into a folder and never installed.
#
#   scripts/test/cross-rust.sh [FOLDER] [TARGET...]
#                                  (default: .cross-rust aarch64-unknown-linux-gnu)
#
# Prints the path of the compiler, for cargo's variable RUSTC; the linker is the caller's business
# (scripts/release/release-venv.sh has zig). If that fails, prints the reason to stderr and exits with 1.
#
# TARGET aarch64-unknown-linux-gnu comes with its standard library. No Debian release has a recent
# one for Windows or macOS: for any other target the library's source is unpacked, which
# `RUSTC_BOOTSTRAP=1 cargo check -Z build-std --target TARGET` compiles.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../.cross-rust}
shift $(($# > 0 ? 1 : 0))
targets=("$@")
if [ ${#targets[@]} = 0 ]; then targets=(aarch64-unknown-linux-gnu); fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
log=$folder/log.txt
suite=forky
# shellcheck source-path=SCRIPTDIR source=debian.sh
. "$here/debian.sh"

give_up() {
    echo "cross-rust: $1" >&2
    exit 1
}

# The compiler with all libraries that it loads.
compiler_packages() {
    printf '%s\n' libstd-rust-dev rustc
    # shellcheck disable=SC2046  # one word each
    debian_closure $(apt-cache "${options[@]}" depends --important libstd-rust-dev | sed -n 's/^ *Depends: //p') |
        grep -vE '^(gcc-.*-base|libc-gconv-modules-extra)$'
}

# What is missing, one mark per package set: 'compiler', the targets with a library, 'source'.
missing_sets() {
    local target set
    for target in compiler "${targets[@]}"; do
        case $target in
        compiler | aarch64-unknown-linux-gnu) set=$target ;;
        *) set=source ;;
        esac
        if [ ! -e "$folder/.complete-$set" ]; then echo "$set"; fi
    done | sort -u
}

fetch() {
    local archive set packages
    archive=$(debian_archive debian || true)
    [ -n "$archive" ] || give_up "this machine has no Debian archive in its package sources"
    apt_options "$folder/apt"
    options+=(-o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Architectures::=arm64)
    debian_source "$archive" "$suite" >"$folder/apt/sources/$suite.sources"
    apt-get "${options[@]}" update >>"$log" 2>&1 || give_up "apt-get update of Debian's $suite failed (see $log)"
    for set in "$@"; do
        case $set in
        compiler) mapfile -t packages < <(compiler_packages) ;;
        aarch64-unknown-linux-gnu) packages=(libstd-rust-dev:arm64) ;;
        source) packages=(rust-src) ;;
        esac
        debian_into "$folder/root" "${packages[@]}" || give_up "Debian's packages could not be unpacked: ${packages[*]} (see $log)"
        touch "$folder/.complete-$set"
    done
    rm -rf "$folder/apt"
}

write_wrapper() {
    cat >"$folder/rustc" <<'WRAPPER'
#!/bin/sh
# Debian's compiler with the loader and the libraries it was packaged with.
root=$(dirname "$(readlink -f "$0")")/root
run() { exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/rustc" "$@"; }
for argument; do
    case $argument in --sysroot*) run "$@" ;; esac
done
run --sysroot "$root/usr" "$@"
WRAPPER
    chmod +x "$folder/rustc"
}

[ "$(uname -sm)" = "Linux x86_64" ] || give_up "only Linux on x86-64 is supported"
exec 9>"$folder/.lock"
flock 9
mapfile -t sets < <(missing_sets)
if [ ${#sets[@]} != 0 ]; then
    : >"$log"
    fetch "${sets[@]}"
fi
write_wrapper
for target in "${targets[@]}"; do
    "$folder/rustc" --print target-list | grep -qx "$target" || give_up "rustc knows no target '$target'"
done
"$folder/rustc" --version >>"$log" 2>&1 || give_up "the compiler does not run here (see $log)"
echo "$folder/rustc"
