#!/usr/bin/env bash
# Measures the cost of recording, and prints Markdown tables. See bench.py.
#
#   scripts/bench.sh [OPTIONS OF bench.py...]      for example --repetitions 20 --only busy
#
# Installs what is missing (including bpftrace), builds a release, creates the PyTorch environment.
# Needs root and an otherwise idle machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

need_packages building "${build_packages[@]}"
need_packages "the comparison" bpftrace binutils python3 python3-venv time
can_be_root || die "measuring needs root"
if [ -z "${GCTRACE:-}" ]; then
    build build --release
    GCTRACE=${CARGO_TARGET_DIR:-$checkout/target}/release/gctrace
fi

# Older bpftrace needs it; many systems mount it only on request.
mountpoint -q /sys/kernel/tracing || as_root mount -t tracefs tracefs /sys/kernel/tracing
# bpftrace probes by symbol: use a Python with symbols for both programs, if there is one.
as_builder "$checkout/scripts/interpreters.sh" "$checkout/.interpreters" >/dev/null
python=$(awk -F'\t' '$3 ~ /symbols/ && $1 ~ /3\.1[12]$/ { path = $4 } END { print path }' "$checkout/.interpreters/manifest.tsv")
python=${GCTRACE_BENCH_PYTHON:-${python:-/usr/bin/python3}}
torch=$(as_builder env "GCTRACE_TORCH_BASE=$python" "$checkout/scripts/torch-venv.sh" "$checkout/.venv-torch-bench") || torch=
as_root python3 "$checkout/scripts/bench/bench.py" --gctrace "$GCTRACE" --python "$python" ${torch:+--torch-python "$torch"} "$@"
