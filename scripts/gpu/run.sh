#!/usr/bin/env bash
# Tests gctrace on this machine's GPU; see run.py. Needs only a Python with PyTorch.
#
#   run.sh [OUT [PART...]]            (default: gpu-results, every part)
#
# GCTRACE_TORCH_PYTHON names the Python; otherwise the first python3 in PATH that imports torch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

find_python() {
    local python
    for python in ${GCTRACE_TORCH_PYTHON:-} $(type -ap python3 || true); do
        if "$python" -c 'import torch' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

python=$(find_python) || {
    echo "run.sh: no Python imports torch; name one in GCTRACE_TORCH_PYTHON" >&2
    exit 1
}
out=${1:-gpu-results}
if [ "$(id -u)" != 0 ]; then exec "$python" "$here/run.py" --out "$out" "${@:2}"; fi
# As root gctrace loads its library only from where no other user can replace it.
private=$(mktemp -d "$HOME/.gctrace-gpu.XXXXXX")
trap 'rm -rf "$private"' EXIT
cp -r "$here/." "$private"
chown -R 0:0 "$private"
chmod -R go-w "$private"
"$python" "$private/run.py" --out "$out" "${@:2}"
