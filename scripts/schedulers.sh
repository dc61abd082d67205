#!/usr/bin/env bash
# Unpacks Slurm and Open MPI of this Debian or Ubuntu into a folder, for the tests of the documents.
#
#   scripts/schedulers.sh [FOLDER]            (default: .schedulers)
#
# Installs nothing: no daemon starts and no system file changes. Prints the folder. If that fails,
# prints the reason to stderr and exits with 1: tests print it as a named skip.
set -euo pipefail

folder=${1:-$(dirname "$0")/../.schedulers}
slurm=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 liblua5.1-0)

give_up() {
    echo "schedulers: $1" >&2
    exit 1
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder.lock"
flock 9
if [ ! -e "$folder/.complete" ]; then
    command -v apt-get >/dev/null || give_up "only Debian and Ubuntu are supported"
    packages=$(mktemp -d)
    trap 'rm -rf "$packages"' EXIT
    # What is installed already is not among them.
    mapfile -t mpi < <(apt-get --print-uris -y -qq --no-install-recommends install openmpi-bin 2>/dev/null |
        sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
    (cd "$packages" && apt-get download -qq "${slurm[@]}" "${mpi[@]}" openmpi-bin openmpi-common libopenmpi3 >&2) ||
        give_up "the packages could not be downloaded (apt-get update helps)"
    for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$folder"; done
    touch "$folder/.complete"
fi
echo "$folder"
