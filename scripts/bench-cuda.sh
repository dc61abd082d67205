#!/usr/bin/env bash
# What gctrace's probes on CUDA cost per call, in runs of one program in turn: alone, under gctrace with each
# --cuda, and under bpftrace with probes in the same places. The CUDA is a fake that only notes the time, so the
# difference is the probe. Needs root, cc and bpftrace; GCTRACE names the binary.
#
#   scripts/bench-cuda.sh [REPETITIONS] [CALLS]        default: 9 of 200,000 calls each
set -euo pipefail

repetitions=${1:-9}
calls=${2:-200000}
sources=$(cd "$(dirname "$0")/../tests/python" && pwd)
gctrace=${GCTRACE:-gctrace}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

fake() { cc -O2 -shared -fPIC -fvisibility=hidden "-D$1" "-DLIBRARY=$2" "-Wl,-soname,$3" -o "$3" "$sources/fake_cuda.c" "${@:4}"; }
fake DRIVER cuda libcuda.so.1
fake RUNTIME cudart libcudart.so.12 ./libcuda.so.1
cc -O2 -o loop "$sources/cuda_loop.c" ./libcudart.so.12 ./libcuda.so.1
export LD_LIBRARY_PATH=$place
cat >same.bt <<END
uprobe:$place/libcuda.so.1:cuLaunchKernel { @launches[tid] = count(); }
uprobe:$place/libcudart.so.12:cudaLaunchKernel { @launches[tid] = count(); }
uprobe:$place/libcuda.so.1:cuMemcpyAsync { @begin[tid] = nsecs; }
uretprobe:$place/libcuda.so.1:cuMemcpyAsync { @time[tid] = sum(nsecs - @begin[tid]); }
END

for ((i = 0; i < repetitions; i++)); do
    echo "alone $(./loop "$calls")"
    for mode in off launches all; do
        echo "--cuda-$mode $("$gctrace" -q --cuda "$mode" -- ./loop "$calls")"
    done
    echo "bpftrace $(bpftrace same.bt -c "./loop $calls" 2>/dev/null | grep -E '^[0-9]+ [0-9]+ [0-9]+$')"
done >"times.txt"

python3 - times.txt <<'END'
import statistics
import sys

runs = {}
for line in open(sys.argv[1]):
    name, *values = line.split()
    runs.setdefault(name, []).append([int(value) for value in values])
print("| ns per call, least (median) | cuLaunchKernel | cudaLaunchKernel | cuMemcpyAsync |")
print("|---|---|---|---|")
for name, values in runs.items():
    cells = [f"{min(column)} ({statistics.median(column):.0f})" for column in zip(*values)]
    print(f"| {name.replace('--cuda-', 'gctrace --cuda ')} | " + " | ".join(cells) + " |")
END
