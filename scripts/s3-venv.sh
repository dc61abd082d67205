#!/usr/bin/env bash
# Creates a virtual environment with moto, a server that answers as S3 does: the tests of cluster/
# start it on loopback (320 MB).
#
#   scripts/s3-venv.sh [FOLDER]            (default: .venv-s3)
#
# Prints the path of its python. If that fails, prints the reason to stderr and exits with 1: tests
# print it as a named skip.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../.venv-s3}
package='moto[s3,server]==5.2.5'

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "s3-venv: $1" >&2
    exit 1
}

works() { "$folder/bin/python" -c 'import moto.server' >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ] && works; then
    echo "$folder/bin/python"
    exit 0
fi

: >"$log"
python3 -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
rm -rf "$folder"
python3 -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$package" >>"$log" 2>&1 ||
    give_up "$package could not be installed (see $log)"
works || give_up "$package is installed but does not import (see $log)"
touch "$folder/.complete"
echo "$folder/bin/python"
