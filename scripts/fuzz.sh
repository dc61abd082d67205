#!/usr/bin/env bash
# Fuzzes the code that reads bytes from other programs.
#
#   scripts/fuzz.sh [TARGET...] [--seconds N] [--rounds N]     default: every target, 10 s each, once
#   scripts/fuzz.sh --count             adds the recorded runs to scripts/bench/results/fuzz.csv
#
# Builds the targets of */fuzz with the stable toolchain: the flags below make rustc instrument for
# coverage; the libFuzzer of libfuzzer-sys does the rest. Debug assertions and overflow checks are
# on. Corpora grow in target/fuzz/corpus/TARGET, failing inputs are kept in target/fuzz/failed. The
# runs and their CPU time are recorded in target/fuzz/runs.tsv.
#
# Exit code: 1 if a target failed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

if [ "${1:-}" = --count ]; then exec python3 "$checkout/scripts/test/fuzz.py" --count; fi

need_packages building "${build_packages[@]}" g++
need_cargo
folder=$checkout/target/fuzz
machine=$(uname -m)-unknown-linux-gnu # explicit, so that build scripts are not instrumented
flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing -Cdebug-assertions -Coverflow-checks)
for room in analysis ebpf probes; do
    as_builder env "RUSTFLAGS=${flags[*]}" "CARGO_TARGET_DIR=$folder" "$cargo" build --quiet --release \
        --target "$machine" --manifest-path "$checkout/$room/fuzz/Cargo.toml"
done
as_builder "$checkout/probes/fuzz/seed.sh" "$folder/corpus/resolve" >/dev/null
as_builder python3 "$checkout/scripts/test/fuzz.py" --folder "$folder" --programs "$folder/$machine/release" "$@"
