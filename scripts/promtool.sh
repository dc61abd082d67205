#!/usr/bin/env bash
# Unpacks promtool of this Debian or Ubuntu into a folder, for the tests of docs/prometheus-rules.yml.
#
#   scripts/promtool.sh [FOLDER]            (default: .promtool)
#
# Installs nothing: the package would start a server. Prints the folder of promtool, that in PATH if there is one. If
# that fails, prints the reason to stderr and exits with 1: tests print it as a named skip.
set -euo pipefail

folder=${1:-$(dirname "$0")/../.promtool}

give_up() {
    echo "promtool: $1" >&2
    exit 1
}

if installed=$(command -v promtool); then
    dirname "$installed"
    exit
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/promtool" ]; then
    command -v apt-get >/dev/null || give_up "only Debian and Ubuntu are supported"
    packages=$(mktemp -d)
    trap 'rm -rf "$packages"' EXIT
    (cd "$packages" && apt-get download -qq prometheus >&2) || give_up "the package could not be downloaded (apt-get update helps)"
    dpkg-deb --fsys-tarfile "$packages"/*.deb | tar -x -C "$packages" ./usr/bin/promtool || give_up "the package has none"
    mv "$packages/usr/bin/promtool" "$folder/promtool"
fi
echo "$folder"
