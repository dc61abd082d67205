#!/usr/bin/env bash
# Runs the ring's unit tests, with those of its messages, and the decoders of the kernel's records under Miri, which
# finds undefined behavior and races.
#
#   scripts/miri.sh
#
# What Miri cannot run (memfd, fork, sockets, CPython, libbpf) is left to the other tiers. Needs
# `rustup toolchain install nightly --component miri,rust-src`; without it prints `skipped miri: REASON`.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

need_cargo
if ! build +nightly miri --version >/dev/null 2>&1; then
    say "skipped miri: the nightly toolchain has none (rustup toolchain install nightly --component miri,rust-src)"
    exit 0
fi
# proptest reads the environment and its file of past failures.
miri() {
    as_builder env MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES="${PROPTEST_CASES:-4}" \
        "$cargo" +nightly miri test --manifest-path "$checkout/Cargo.toml" "$@"
}
miri -p gctrace-ring --lib -- --skip absence:: --skip quietly::
miri -p gctrace-ebpf --lib -- decode counts attach cookie
