#!/usr/bin/env bash
# Creates a small virtual environment with kubernetes-validate, which checks manifests by the schemas
# of Kubernetes, without a cluster.
#
#   scripts/install-test/kubernetes-venv.sh [FOLDER]         (default: .venv-kubernetes; 40 MB)
#
# Prints the folder of its programs. If that fails, prints the reason to stderr and exits with 1.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath -m "${1:-$here/../../.venv-kubernetes}")
package=kubernetes-validate==1.37.0

give_up() {
    echo "kubernetes-venv: $1" >&2
    exit 1
}

exec 9>"$folder.lock"
flock 9
if [ "$(cat "$folder/.complete" 2>/dev/null)" != "$package" ]; then
    rm -rf "$folder"
    { /usr/bin/python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$package"; } \
        >"$folder.log" 2>&1 || give_up "$package could not be installed (see $folder.log)"
    echo "$package" >"$folder/.complete"
fi
echo "$folder/bin"
