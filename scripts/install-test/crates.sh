#!/usr/bin/env bash
# The packages for crates.io: each builds from its own files alone, without clang and rustfmt; the
# program that results loads its BPF programs. Uploads nothing.
#
# Takes minutes of compiling, so --quick leaves the building out.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../setup.sh
. "$(dirname "$0")/../setup.sh"

passed() { echo "ok crates: $*"; }
failed() { echo "FAILED crates: $*"; }
# check WHAT COMMAND...
check() {
    local what=$1
    shift
    if "$@" >&2; then passed "$what"; else failed "$what"; fi
}

stage=$RELEASE_OUT/stage-crates
if [ ! -d "$stage" ]; then
    echo "skipped crates: scripts/release.sh OUT crates has not made them"
    exit
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$checkout/target}

# The same sources, compiled in another place.
same_objects() {
    local compiled object
    GCTRACE_BPF=compile build check --quiet --locked -p gctrace-ebpf || return 1
    compiled=$(find "$CARGO_TARGET_DIR"/debug/build/gctrace-ebpf-*/out -name gctrace.bpf.o -printf '%T@ %h\n' | sort -n | tail -1)
    compiled=${compiled#* }
    for object in "$stage/ebpf/bpf/prebuilt/$(uname -m)"/*.bpf.o; do
        cmp "$object" "$compiled/$(basename "$object")" || return 1
    done
}

# What building needs, less clang and rustfmt. Cargo of the toolchain itself: rustup's would add its
# own folder to the search path.
search_path() {
    local folder program
    mkdir "$place/bin"
    for folder in /usr/local/bin /usr/bin /bin "$(as_builder rustc --print sysroot)/bin"; do
        for program in "$folder"/*; do
            case ${program##*/} in
            clang* | llvm* | rustfmt* | cargo-fmt*) ;;
            *) ln -sf "$program" "$place/bin/" ;;
            esac
        done
    done
}

# Cargo builds each package where it has unpacked it; with the workspace's profile, so that
# dependencies are those of other builds.
dry_run() {
    rm -f "$CARGO_TARGET_DIR/debug/gctrace"
    cd "$stage" && as_builder env PATH="$place/bin" CARGO_TARGET_DIR="$CARGO_TARGET_DIR" CARGO_PROFILE_DEV_DEBUG=line-tables-only \
        cargo publish --dry-run --workspace --allow-dirty --locked
}

records() {
    local trace=$place/trace.json.gz
    as_root env PATH="$PATH" "$CARGO_TARGET_DIR/debug/gctrace" --mode ebpf -o "$trace" -- \
        python3 -c 'import gc; gc.collect()' &&
        as_root "$CARGO_TARGET_DIR/debug/gctrace" analyze "$trace" | grep -q paused
}

check "the compiled BPF programs are those of the sources" same_objects
if [ "${INSTALL_TEST_QUICK:-}" = yes ]; then
    echo "skipped crates: building them takes minutes"
    exit
fi
search_path
PATH=$place/bin check "no clang in the search path" bash -c '! command -v clang && ! command -v rustfmt'
check "each package builds from its own files" dry_run
check "the program loads its BPF programs" records
