#!/usr/bin/env bash
# Lines and functions that the plain tier's unit and integration tests run, by crate.
#
#   scripts/coverage.sh [FOLDER]      of a crate; default: all of them. Writes target/coverage/summary.txt too
#
# Needs llvm-cov and llvm-profdata of the toolchain's own LLVM: `rustup component add llvm-tools`.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

need_packages building "${build_packages[@]}"
need_cargo
cd "$checkout"
folder=$checkout/target/coverage
tools=$(as_builder rustc --print target-libdir)/../bin
[ -x "$tools/llvm-cov" ] || die "the toolchain has no llvm-cov: rustup component add llvm-tools"

if [ $# = 0 ]; then
    targets=(--workspace --lib --bins --test plain)
else
    cd "$1"
    targets=(--bins)
    if [ -e src/lib.rs ]; then targets+=(--lib); fi
    if [ -e tests/plain ]; then targets+=(--test plain); fi
fi

as_builder mkdir -p "$folder"
find "$folder" -name '*.profraw' -delete
# Build scripts and macros are not instrumented where the target is named.
machine=$(as_builder rustc -vV | sed -n 's/^host: //p')
instrumented=(env "RUSTFLAGS=-Cinstrument-coverage -Cforce-frame-pointers=yes" "CARGO_TARGET_DIR=$folder"
    "LLVM_PROFILE_FILE=$folder/%p-%8m.profraw")
programs=$(as_builder "${instrumented[@]}" "$cargo" test --no-run --target "$machine" "${targets[@]}" \
    --message-format=json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["reason"] == "compiler-artifact" and message["executable"]:
        print("--object=" + message["executable"])')
as_builder "${instrumented[@]}" "$cargo" test --quiet --no-fail-fast --target "$machine" "${targets[@]}"
find "$folder" -name '*.profraw' >"$folder/profiles"
as_builder "$tools/llvm-profdata" merge --sparse --input-files="$folder/profiles" -o "$folder/merged.profdata"
mapfile -t objects <<<"$programs"
as_builder "$tools/llvm-cov" export --summary-only --instr-profile="$folder/merged.profdata" \
    --ignore-filename-regex='/(\.cargo|rustc|tests|target)/' "${objects[@]}" | python3 -c '
import json, os, sys
crates = {}
for file in json.load(sys.stdin)["data"][0]["files"]:
    crate = os.path.relpath(file["filename"], sys.argv[1]).split("/src/")[0]
    sums = crates.setdefault(crate, [0] * 4)
    for at, kind in enumerate(("lines", "functions")):
        sums[2 * at] += file["summary"][kind]["covered"]
        sums[2 * at + 1] += file["summary"][kind]["count"]
for crate, (lines, all_lines, functions, all_functions) in sorted(crates.items()):
    share = 100 * lines / all_lines if all_lines else 0
    print(f"{crate:20} {share:5.1f} % of {all_lines} lines, {functions} of {all_functions} functions")
' "$checkout" | as_builder tee "$folder/summary.txt"
