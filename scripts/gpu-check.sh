#!/usr/bin/env bash
# Checks gctrace on a machine with an NVIDIA GPU, and prints a Markdown table for
# docs/measurements.md.
#
#   scripts/gpu-check.sh [FOLDER]             (default: gpu-check)
#
# Records examples/train_torch.py on the GPU, run by torch.profiler meanwhile
# (gpu_steps.py), and compares the launches with the profiler's own count and
# NVML's figures with nvidia-smi's for the same steps (gpu_check.py). The folder
# keeps everything; FOLDER/gpu.json.gz is a recording of a few steps, small enough
# to be kept as a fixture.
#
# Exit code: 0 if all agree, 1 if something differs or went wrong, 3 without a GPU.
# GCTRACE names another binary, GCTRACE_TORCH_PYTHON another environment, STEPS
# how many steps are compared.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

if ! gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || [ -z "$gpus" ]; then
    say "gpu-check: no NVIDIA GPU here (nvidia-smi does not work); nothing was checked"
    exit 3
fi
can_be_root || die "recording needs root"
mkdir -p "${1:-gpu-check}"
out=$(cd "${1:-gpu-check}" && pwd)
chmod a+rwx "$out"
steps=${STEPS:-60}

if [ -z "${GCTRACE:-}" ]; then
    need_packages building "${build_packages[@]}"
    build build --release --quiet
    GCTRACE=${CARGO_TARGET_DIR:-$checkout/target}/release/gctrace
fi
python=${GCTRACE_TORCH_PYTHON:-}
if [ -z "$python" ]; then
    need_packages "PyTorch" python3 python3-venv
    python=$(as_builder "$checkout/scripts/torch-venv.sh" "$checkout/.venv-torch") || die "no PyTorch"
fi
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || die "the PyTorch of $python does not use the GPU"

# CUPTI serves one tool at a time, and here that is torch.profiler: gctrace sees launches by its probes.
options=(--nvml-hz 20 --mode ebpf)
if "$GCTRACE" record --help | grep -q -- --cuda; then
    options+=(--cuda all)
else
    say "gpu-check: this gctrace does not record launches (no --cuda)"
fi
# record TRACE STEPS: the example with the profiler's eyes on it.
record() {
    as_root "$GCTRACE" "${options[@]}" -o "$1" -- "$python" "$checkout/scripts/gpu_steps.py" "$out" \
        "$checkout/examples/train_torch.py" --device cuda --workers 0 --steps "$2" --batch 32 --width 512 --layers 8 --heads 8
}

# A short one first: its trace is the fixture, and files are in the cache after it.
record "$out/gpu.json.gz" 5
TZ=UTC0 nvidia-smi --query-gpu=timestamp,uuid,utilization.gpu,memory.used,power.draw,clocks.sm,clocks.mem \
    --format=csv,noheader,nounits -lms 100 >"$out/smi.csv" &
smi=$!
trap 'kill "$smi" 2>/dev/null || true' EXIT
record "$out/trace.json.gz" "$steps"
kill "$smi" 2>/dev/null || true

processor=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1)
machine="$(sort <<<"$gpus" | uniq -c | sed 's/^ *//' | paste -sd';'), $(nproc) CPUs of $processor, Linux $(uname -r)."
differs=0
TZ=UTC0 python3 "$checkout/scripts/gpu_check.py" --trace "$out/trace.json.gz" --profile "$out/profile.json" \
    --steps "$out/steps.json" --smi "$out/smi.csv" --machine "$machine" | tee "$out/table.md" || differs=1
say "gpu-check: the table is $out/table.md; $out/gpu.json.gz ($(stat -c %s "$out/gpu.json.gz") bytes) may be kept as a fixture"
exit $differs
