#!/usr/bin/env bash
# Makes the release of the commit that is checked out twice, from two folders of different length and
# with two homes of cargo, and compares the checksums. Prints them; exits with 1 if one differs.
#
#   scripts/reproducible.sh [--profile dev|dist] [ARTIFACT...]          (dist: 20 minutes)
#
# Arguments are those of scripts/release.sh. Compiler, clang and glibc are the same for both.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

options=()
if [ "${1:-}" = --profile ]; then
    options=("$1" "${2:?dev or dist}")
    shift 2
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# made FOLDER CARGO_HOME: the release from a clone in this folder.
made() {
    git clone --quiet "$checkout" "$place/$1/gctrace"
    mkdir -p "$2"
    # Where crates come from, if that is configured.
    cp "${CARGO_HOME:-$HOME/.cargo}"/config.toml "$2/" 2>/dev/null || true
    # Tools that pack, not those that compile.
    if [ -d "$checkout/.package-tools" ]; then cp -r "$checkout/.package-tools" "$place/$1/gctrace/"; fi
    CARGO_HOME=$2 CARGO_TARGET_DIR=$place/$1/target \
        "$place/$1/gctrace/scripts/release.sh" "${options[@]}" "$place/$1/out" "${@:3}" >&2
}

need_cargo
made one "${CARGO_HOME:-$HOME/.cargo}" "$@"
made another/with-a-longer-name "$place/cargo" "$@"
differing=$(diff "$place/one/out/SHA256SUMS" "$place/another/with-a-longer-name/out/SHA256SUMS") || {
    echo "$differing"
    trap - EXIT
    die "the builds differ: $place"
}
cat "$place/one/out/SHA256SUMS"
say "both builds are the same"
