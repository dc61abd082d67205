#!/usr/bin/env bash
# Builds gctrace, records the example training program, prints the report.
#
#   scripts/run.sh [OPTIONS OF THE EXAMPLE...]      for example --steps 50
#
# Installs missing system packages (Debian, Ubuntu), and lists them first. Works as root and as a
# user with sudo; only apt-get and the recording run as root, the example itself runs as the user.
# Without root it is recorded in-process.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

need_packages building "${build_packages[@]}"
need_packages "the example" python3
# The program contains the libraries, as releases do: it works wherever it is copied to.
folder=$(realpath -m "${CARGO_TARGET_DIR:-$checkout/target}")/release
# The same packages both times: others would select other features of dependencies, and compile them twice.
packages=(-p gctrace -p gctrace-inject -p gctrace-simgpu)
say "building gctrace in $folder (a few minutes the first time)"
build build --release "${packages[@]}" --lib
(cd "$checkout" && as_builder env "GCTRACE_BUNDLE=$folder" "$cargo" build --release "${packages[@]}" --bin gctrace)

gctrace=$folder/gctrace
trace=$checkout/trace.json
if can_be_root; then record=as_root; else record=; fi
say "recording examples/train.py into $trace"
$record "$gctrace" record -o "$trace" -- python3 "$checkout/examples/train.py" "$@"
echo
"$gctrace" analyze "$trace"
