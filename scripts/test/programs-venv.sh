#!/usr/bin/env bash
# Creates a virtual environment with the programs that tests/programs runs.
#
#   scripts/test/programs-venv.sh [FOLDER [short]]      (default: .venv-programs)
#
# `short` installs only what the short form of that tier needs (5 MB instead of 150). Prints the
# path of its python. If that fails, prints the reason to stderr and exits with 1: the programs that
# need it become named skips.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../.venv-programs}
form=${2:-whole}
short=(pytest==9.2.0 pytest-xdist==3.8.0 gunicorn==27.0.1 setproctitle==1.3.8)
whole=(tox==4.67.15 uvicorn==0.54.0 celery==5.7.0 joblib==1.6.0 dask==2026.8.0 distributed==2026.8.0 ray==2.60.0
    ipykernel==7.4.0 nbconvert==7.17.2 nbclient==0.11.0 memray==1.20.0 py-spy==0.4.3)

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "programs-venv: $1" >&2
    exit 1
}

install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ ! -e "$folder/.complete-short" ] || ! "$folder/bin/python" -c '' 2>/dev/null; then
    : >"$log"
    /usr/bin/python3 -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
    rm -rf "$folder"
    /usr/bin/python3 -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
    install "${short[@]}" || give_up "${short[*]} could not be installed (see $log)"
    touch "$folder/.complete-short"
fi
if [ "$form" = whole ] && [ ! -e "$folder/.complete" ]; then
    echo "programs-venv: installing ${#whole[@]} programs into $folder (from the package index, about 150 MB)" >&2
    install "${whole[@]}" || give_up "${whole[*]} could not be installed (see $log)"
    touch "$folder/.complete"
fi
echo "$folder/bin/python"
