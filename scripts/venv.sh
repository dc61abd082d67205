#!/usr/bin/env bash
# Creates a virtual environment with packages of PyPI that tests need, at pinned versions:
#
#   metrics   the Prometheus project's package, whose parsers check the metrics page
#   package   pytest, IPython and mypy, in which tests/python/package_tools.py uses the package gctrace
#   s3        moto, a server that answers as S3 does: the tests of cluster/ start it on loopback
#   tables    readers of Parquet, with which tests/python/tables_truth.py reads tables
#   tables-short
#             two of them
#
#   scripts/venv.sh NAME [FOLDER]            (default: .venv-NAME)
#
# Prints the path of its python. If that fails, prints the reason to stderr and exits with 1: tests
# print it as a named skip. Environments that need more than pip are scripts of their own, *-venv.sh.
set -euo pipefail

name=${1-}
# Modules that must import, and the free disk space in MB: about twice the size once installed.
case $name in
metrics)
    packages=(prometheus-client==0.26.0)
    modules=prometheus_client.openmetrics.parser
    space=60
    ;;
package)
    packages=(pytest==9.2.0 pytest-xdist==3.8.0 ipython==9.18.1 mypy==2.4.1)
    modules='pytest, xdist, IPython, mypy'
    space=250
    ;;
s3)
    packages=('moto[s3,server]==5.2.5')
    modules=moto.server
    space=700
    ;;
tables)
    packages=(duckdb==2.0.0 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 datafusion==55.0.0)
    modules='datafusion, duckdb, pandas, polars, pyarrow'
    space=1500
    ;;
tables-short)
    packages=(duckdb==2.0.0 pyarrow==26.0.1)
    modules='duckdb, pyarrow'
    space=500
    ;;
*)
    echo "venv.sh: no environment '$name': metrics, package, s3, tables, tables-short" >&2
    exit 1
    ;;
esac

folder=${2:-$(dirname "$0")/../.venv-$name}
mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "venv.sh $name: $1" >&2
    exit 1
}

works() { "$folder/bin/python" -c "import $modules" >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ] && works; then
    echo "$folder/bin/python"
    exit 0
fi

: >"$log"
python3 -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
free=$(df --output=avail -m "$(dirname "$folder")" | tail -1)
[ "$free" -gt "$space" ] || give_up "less than $space MB of disk space left"
echo "venv.sh $name: installing ${packages[*]} into $folder (from the package index)" >&2
rm -rf "$folder"
python3 -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "${packages[@]}" >>"$log" 2>&1 ||
    give_up "${packages[*]} could not be installed (see $log)"
works || give_up "${packages[*]} installed, but not importable (see $log)"
touch "$folder/.complete"
echo "$folder/bin/python"
