#!/usr/bin/env bash
# Builds a folder that tests gctrace on a machine with an NVIDIA GPU, without network, compiler or
# clang there.
#
#   scripts/gpu-bundle.sh [FOLDER]            (default: gpu-bundle)
#   FOLDER/run.sh [OUT [PART...]]             there, as root, in under 9 minutes
#
# The other machine needs x86-64, this machine's glibc or a newer one, and a Python with PyTorch. The
# programs are those of releases (scripts/release/binaries.sh); PROFILE=dev is for testing the bundle
# itself.
set -euo pipefail
export RELEASE_PROFILE=${PROFILE:-dist}
# shellcheck source-path=SCRIPTDIR source=release/environment.sh
. "$(dirname "$0")/release/environment.sh"

limit_kib=61440
mkdir -p "${1:-gpu-bundle}"
bundle=$(cd "${1:-gpu-bundle}" && pwd)
"$checkout/scripts/release/binaries.sh"

rm -rf "${bundle:?}"/{bin,lib,parts}
mkdir -p "$bundle/bin" "$bundle/lib"
cp -r "$checkout"/scripts/gpu/{run.sh,run.py,bench.py,compare.py,train.py,launch_rate.py,parts} "$bundle"
rm -rf "$bundle"/parts/__pycache__
cp "$RELEASE_STAGE/bin/gctrace" "$RELEASE_STAGE"/lib/gctrace/*.so "$bundle/bin/"
gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$bundle/lib/launches.so" "$checkout/scripts/gpu/launches.c"
{
    echo "commit $(git -C "$checkout" rev-parse HEAD 2>/dev/null || echo unknown)"
    objdump -T "$bundle"/bin/* "$bundle"/lib/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1
} >"$bundle/BUILT"
size=$(du -sk "$bundle" | cut -f1)
[ "$size" -le "$limit_kib" ] || die "$bundle has $size KiB, more than $limit_kib"
say "gpu-bundle: $bundle ($size KiB, needs $(tail -1 "$bundle/BUILT")): run $bundle/run.sh on the machine with the GPU"
