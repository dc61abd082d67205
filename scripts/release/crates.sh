#!/usr/bin/env bash
# Makes the packages for crates.io of the commit that is checked out, in RELEASE_OUT
# (environment.sh): *.crate, and stage-crates, a clone from which they are published:
#
#   cd dist/stage-crates && cargo publish --workspace --allow-dirty      (the compiled programs)
#
# The package of the BPF programs contains them compiled for every architecture, so that nobody
# needs clang to build it. scripts/install-test.sh crates builds what the packages contain.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

clone=$RELEASE_OUT/stage-crates
rm -rf "$clone"
git clone --quiet "$checkout" "$clone"
if [ -n "$(git -C "$checkout" status --porcelain)" ]; then say "crates: without the changes that are not committed"; fi

cd "$clone"
export CARGO_TARGET_DIR=$release_target_folder
rm -f "$release_target_folder"/package/*.crate
GCTRACE_BPF=prebuild "$cargo" check --quiet --locked -p gctrace-ebpf
"$cargo" package --quiet --workspace --exclude gctrace-test-kit --no-verify --allow-dirty --locked
cp "$release_target_folder"/package/*.crate "$RELEASE_OUT/"
say "crates: $(cd "$RELEASE_OUT" && echo *.crate)"
