#!/usr/bin/env bash
# Creates a virtual environment with the readers that tests/python/tables_truth.py reads tables with:
# DuckDB, polars, pandas with pyarrow, DataFusion (700 MB).
#
#   scripts/tables-venv.sh [FOLDER]            (default: .venv-tables)
#
# Prints the path of its python. If that fails, prints the reason to stderr and exits with 1: tests
# print it as a named skip.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../.venv-tables}
packages=(duckdb==2.0.0 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 datafusion==55.0.0)

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "tables-venv: $1" >&2
    exit 1
}

works() { "$folder/bin/python" -c 'import datafusion, duckdb, pandas, polars, pyarrow' >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ] && works; then
    echo "$folder/bin/python"
    exit 0
fi

: >"$log"
python3 -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
free=$(df --output=avail -k "$(dirname "$folder")" | tail -1)
[ "$free" -gt 1500000 ] || give_up "less than 1.5 GB of disk space left"
echo "tables-venv: installing ${packages[*]} into $folder (from the package index, about 200 MB)" >&2
rm -rf "$folder"
python3 -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "${packages[@]}" >>"$log" 2>&1 ||
    give_up "${packages[*]} could not be installed (see $log)"
works || give_up "the packages are installed but do not import (see $log)"
touch "$folder/.complete"
echo "$folder/bin/python"
