#!/usr/bin/env bash
# Builds a folder that tests gctrace on a machine with an NVIDIA GPU, without network, compiler or
# clang there.
#
#   scripts/gpu-bundle.sh [FOLDER]            (default: gpu-bundle)
#   FOLDER/run.sh [OUT [PART...]]             there, as root, in under 9 minutes
#
# The other machine needs x86-64, this machine's glibc or a newer one, and a Python with PyTorch.
# PROFILE names a cargo profile other than release, for testing the bundle itself.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

limit_kib=61440
need_packages building "${build_packages[@]}" binutils
mkdir -p "${1:-gpu-bundle}"
bundle=$(cd "${1:-gpu-bundle}" && pwd)
# Link libelf and zlib statically: the other machine may have neither.
LIBBPF_SYS_LIBRARY_PATH=$(dirname "$(gcc -print-file-name=libelf.a)")
export LIBBPF_SYS_LIBRARY_PATH
profile=${PROFILE:-release}
build build --profile "$profile" --quiet -p gctrace -p gctrace-inject -p gctrace-simgpu --features gctrace/static
built=${CARGO_TARGET_DIR:-$checkout/target}/${profile/#dev/debug}

rm -rf "${bundle:?}"/{bin,lib,parts}
mkdir -p "$bundle/bin" "$bundle/lib"
cp -r "$checkout"/scripts/gpu/{run.sh,run.py,bench.py,compare.py,train.py,launch_rate.py,parts} "$bundle"
rm -rf "$bundle"/parts/__pycache__
strip -o "$bundle/bin/gctrace" "$built/gctrace"
for library in libgctrace_inject.so libgctrace_simgpu.so; do
    strip --strip-unneeded -o "$bundle/bin/$library" "$built/$library"
done
gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$bundle/lib/launches.so" "$checkout/scripts/gpu/launches.c"
{
    echo "commit $(git -C "$checkout" rev-parse HEAD 2>/dev/null || echo unknown)"
    objdump -T "$bundle"/bin/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1
} >"$bundle/BUILT"
size=$(du -sk "$bundle" | cut -f1)
[ "$size" -le "$limit_kib" ] || die "$bundle has $size KiB, more than $limit_kib"
say "gpu-bundle: $bundle ($size KiB, needs $(tail -1 "$bundle/BUILT")): run $bundle/run.sh on the machine with the GPU"
