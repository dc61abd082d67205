#!/usr/bin/env bash
# Creates a virtual environment in which examples/train_torch.py runs.
#
#   scripts/torch-venv.sh [FOLDER]            (default: .venv-torch)
#
# Prints the path of its python. If that fails, prints the reason to stderr and exits with 1: tests
# print it as a named skip. GCTRACE_TORCH_BASE names the Python to build on; without it, the
# system's or the first one found.
#
# With an NVIDIA driver: PyTorch with its wheel's dependencies, CUDA libraries included (about 3 GB
# to download). Without: the same wheel (540 MB) with the CUDA runtime and its profiling library (14
# MB), which importing torch really calls, and empty stand-ins for NVIDIA's other libraries; see
# torch_without_cuda.py. The package index has no smaller wheel of PyTorch for Linux on x86-64: the
# CPU-only ones are kept elsewhere, and those before 1.13, which had no such dependencies, support
# no Python after 3.10. Debian's python3-torch installs 186 packages into the system.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../.venv-torch}
# Keep the three in step: cuda-toolkit's metadata says which versions go with a torch.
torch=torch==2.15.0
cuda=(nvidia-cuda-runtime==13.2.* nvidia-cuda-cupti==13.2.*)
pure=(filelock 'typing-extensions>=4.13' 'setuptools>=77' 'sympy>=1.13.3' networkx jinja2 fsspec numpy)

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "torch-venv: $1" >&2
    exit 1
}

works() { "$folder/bin/python" -c 'import torch; torch.ones(2).sum().item()' >>"$log" 2>&1; }

# A Python for which PyTorch has a wheel and that can create environments.
base_python() {
    local python
    for python in ${GCTRACE_TORCH_BASE:-/usr/bin/python3 python3}; do
        if "$python" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ] && "$folder/bin/python" -c '' 2>/dev/null; then
    echo "$folder/bin/python"
    exit 0
fi

: >"$log"
[ "$(uname -sm)" = "Linux x86_64" ] || give_up "only Linux on x86-64 is supported"
python=$(base_python) || give_up "no Python 3.11 to 3.14 with venv (Debian, Ubuntu: apt-get install python3-venv)"
free=$(df --output=avail -k "$(dirname "$folder")" | tail -1)
[ "$free" -gt 4000000 ] || give_up "less than 4 GB of disk space left"
echo "torch-venv: installing $torch into $folder (from the package index, about 600 MB without a GPU)" >&2
rm -rf "$folder"
"$python" -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
if nvidia-smi >/dev/null 2>&1; then
    install "$torch" numpy || give_up "$torch could not be installed (see $log)"
else
    install "${pure[@]}" || give_up "PyTorch's requirements could not be installed (see $log)"
    install --no-deps "$torch" "${cuda[@]}" || give_up "$torch could not be installed (see $log)"
    "$folder/bin/python" "$here/test/torch_without_cuda.py" >>"$log" 2>&1 || give_up "torch_without_cuda.py failed (see $log)"
fi
works || give_up "torch is installed but does not import (see $log)"
touch "$folder/.complete"
echo "$folder/bin/python"
